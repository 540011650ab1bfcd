"""Real peers around a real guard: SIPp callers and callees, Kamailio as the protected server (issue 2, section 6)."""
