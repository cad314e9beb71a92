"""GPUs of NVIDIA: Triton's language, compiled by the installed Triton and launched by the driver from C."""
