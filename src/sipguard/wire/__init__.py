"""SIP bytes, just enough: which request is this (scan), its fields (head, values), stream framing, edits on the way through, our own answers.

Sans-IO, stdlib only; no other room of sipguard is known here.
"""
