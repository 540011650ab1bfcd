"""The kernel drop plane (DESIGN §3): a classic BPF filter on UDP sockets that drops sheddable requests, and its counters."""

from sipguard.edge.kernel.attribution import Drops, Taken
from sipguard.edge.kernel.plane import KernelDropPlane, Reading
from sipguard.edge.kernel.program import drop_program
from sipguard.edge.kernel.receive_buffer import request_receive_buffer

__all__ = ["Drops", "KernelDropPlane", "Reading", "Taken", "drop_program", "request_receive_buffer"]
