"""The name of the package for pip, and the commands that install it."""

__all__ = ["BUILD_COMMAND", "FORMER_NAME", "NAME"]

NAME = "pccl-torch"
FORMER_NAME = "pccl"  # until 0.1.0; another project has it now
# Builds it for the torch, the Python and the system that are there.
BUILD_COMMAND = f"pip install --no-build-isolation --no-binary {NAME} {NAME}"
