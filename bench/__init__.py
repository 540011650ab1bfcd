"""CPU microseconds per message, beside Kamailio in the same run (`make bench`). It reports, it never asserts."""
