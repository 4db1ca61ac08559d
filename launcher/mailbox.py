"""What passes between launcher and agent through the object storage, where SSH does not reach.

The agent posts a copy of its status there about once a minute and, at its end, its last words; a command is left for it
beside them. Everything here is slower than SSH and needs nothing but the prefix: neither a key nor an open port.
"""

from __future__ import annotations

from launcher.storage.interface import ObjectStore, StorageError
from remote import protocol
from remote.protocol import AgentStatus, ProtocolError, StopCommand, StoredRun


def last_words(run_id: str, lease_id: str, store: ObjectStore) -> AgentStatus | None:
    """The agent's last status, stored when it ended; None where none can be read. Raises StorageError."""
    return _status(StoredRun(run_id).outcome(lease_id), store)


def newest_status(run_id: str, lease_id: str, store: ObjectStore) -> AgentStatus | None:
    """The agent's newest word in the storage; None where none can be read. Raises StorageError."""
    return last_words(run_id, lease_id, store) or _status(StoredRun(run_id).posted_status(lease_id), store)


def post_stop(run_id: str, lease_id: str, command: StopCommand, store: ObjectStore) -> bool:
    """Leave the command to save and end; False where the storage does not take it."""
    try:
        store.create(StoredRun(run_id).posted_command(lease_id), protocol.encode(command).encode())
    except StorageError:
        return False
    return True


def _status(key: str, store: ObjectStore) -> AgentStatus | None:
    content = store.get(key)
    if content is None:
        return None
    try:
        return protocol.decode(content.decode(), AgentStatus, key)
    except (ProtocolError, UnicodeDecodeError):
        return None
