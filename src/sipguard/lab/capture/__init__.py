"""Captures into SIP requests: containers, link layers, IP, tunnels, fragments, UDP and TCP.

Bytes of a file go in at `files`, `Request`s come out of `decoder.Decoder`; everything between is bounded in memory and takes
whatever bytes there are: what cannot be read is counted (`Tally`) or reported with its offset (`Damage`), never raised.
"""
