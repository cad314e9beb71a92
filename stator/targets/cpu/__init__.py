"""The host's processor: C++ with vectors and threads, or plain C, compiled by g++ into libraries of the store."""
