"""SIP bytes, just enough.

Which request is this (scan), its fields (head, values), framing, edits on the way through, our own answers (replies).
Sans-IO, stdlib only; no other room of sipguard is known here.
"""
