"""The limits that C++ and Python share. `cmake/print_limits.cc` makes the module in each build.

`csrc/protocol/limits.h` defines most of them, with the reason for each. Names in `_S` are
times in seconds; names in `_BYTES_MAX` count bytes, of UTF-8 if it is text.

The numbers are a module of their own, and not a part of `_C`, because the command line needs them,
and `_C` loads torch.
"""

PORT_MAX: int
MASTER_PORT_DEFAULT: int
MASTER_ANSWER_BYTES_MAX: int
"""Maximum bytes of an answer to `pccl runs`."""
PEER_GROUP_MAX: int
MEMBERS_MAX: int
"""Maximum number of members of one peer group."""
HOST_BYTES_MAX: int
RUN_NAME_BYTES_MAX: int
LAUNCH_BYTES_MAX: int
"""Maximum bytes of the text that the processes of one launch share."""
NAME_BYTES_MAX: int
"""Maximum bytes of the name of a peer."""
TAG_BYTES_MAX: int
TOKEN_ID_BYTES_MIN: int
TOKEN_ID_BYTES_MAX: int
TOKEN_SECRET_BYTES: int
"""The exact number of bytes of the secret of a token."""
KEYRING_BYTES_MAX: int
"""Maximum bytes of the file of a keyring."""
STATE_KEYS_MAX: int
"""Maximum number of tensors of one shared state."""
STATE_KEY_BYTES_MAX: int
LANES_MAX: int
"""Maximum number of TCP connections of one link."""
TRIAL_STREAMS_MAX: int
"""Maximum number of TCP connections of one trial of `pccl probe`."""
TRIAL_TIME_MIN_S: float
TRIAL_TIME_MAX_S: float
PROBES_BYTES_MIN: int
"""Minimum of `max_bytes` of optimize_topology."""
PROBE_BUDGET_MAX_S: float
"""Maximum budget of optimize_topology."""
QUANTIZED_BLOCK_MIN: int
"""Minimum number of elements of a block of `MinMax`."""
QUANTIZED_BLOCK_MAX: int
WAN_RTT_MIN_S: float
"""The lowest RTT of a wan path."""
PEER_TIMEOUT_DEFAULT_S: float
PEER_TIMEOUT_MIN_S: float
"""Minimum of the settings PCCL_..._TIMEOUT."""
PEER_TIMEOUT_MAX_S: float
"""Maximum of the settings PCCL_..._TIMEOUT."""
MASTER_TIMEOUT_DEFAULT_S: float
SNAPSHOT_INTERVAL_MIN_S: float
"""Shortest time between two snapshots of a run for its observers."""
