"""Object stores: every machine that works with `s3://…`, `gs://…` or `abfs://…` keeps a mirror of what it uses there.

All code reads and writes local paths. A path in the mirror stands for the location that its parts spell:
~/.cache/icalib/stores/s3/bucket/runs stands for s3://bucket/runs. `pull` downloads what is newer in the store, `push`
uploads what differs here. For a path on a local or shared disk both do nothing.

A file appears whole or not at all. Those whose presence marks a folder as whole (`MARKERS`) are transferred last, in
both directions, so that a folder with its marker is whole, too. The mirror may be deleted whenever nothing runs.
"""

from icalib.core.storage.locations import CACHE, is_mirrored, local_path, location
from icalib.core.storage.object_store import PATIENCE
from icalib.core.storage.synchronisation import MARKERS, names_in, opened, pull, push, remove

__all__ = [
    "CACHE",
    "MARKERS",
    "PATIENCE",
    "is_mirrored",
    "local_path",
    "location",
    "names_in",
    "opened",
    "pull",
    "push",
    "remove",
]
