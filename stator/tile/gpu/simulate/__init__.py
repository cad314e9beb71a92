"""What tile IR with layouts means, thread by thread: every register of every lane, shared memory, barriers, copies."""
