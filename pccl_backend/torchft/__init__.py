"""pccl in torchft: a process group for its Manager, and a transport for its checkpoints.

`ProcessGroupPccl` stands in the place of torchft's ProcessGroupGloo or ProcessGroupNCCL, and
`PcclTransport` in the place of its HTTPTransport. Each works without the other. They are for the
releases 0.2 of torchft, which `pip install "pccl-torch[torchft]"` installs. Their torch needs no
default group of pccl, and PCCL_MASTER and pccl:// URLs play no part.

torchft is loaded when one of the two names is first used.

Example:
    >>> manager = Manager(
    ...     pg=pccl.torchft.ProcessGroupPccl(timeout=timedelta(seconds=30)),
    ...     checkpoint_transport=pccl.torchft.PcclTransport(),
    ...     ...,
    ... )
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pccl_backend.torchft.process_group import ProcessGroupPccl
    from pccl_backend.torchft.transport import PcclTransport

__all__ = ["PcclTransport", "ProcessGroupPccl"]

INSTALL = 'pip install "pccl-torch[torchft]"'


if not TYPE_CHECKING:  # so that a type checker refuses other names

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'pccl_backend.torchft' has no attribute {name!r}")
        try:
            import torchft  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "torchft":
                raise
            raise ModuleNotFoundError(
                f"pccl_backend.torchft.{name} needs torchft: {INSTALL}", name="torchft"
            ) from None
        from pccl_backend.torchft.process_group import ProcessGroupPccl
        from pccl_backend.torchft.transport import PcclTransport

        globals().update(ProcessGroupPccl=ProcessGroupPccl, PcclTransport=PcclTransport)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
