"""The law: parameters, level machine, meters, verdicts (SPEC §1–§7). Pure: time is an argument, nothing is read or written."""
