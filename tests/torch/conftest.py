"""What tests of loaders share."""

from __future__ import annotations

import multiprocessing

# Workers are forked from a server that holds PyTorch already, which each would need seconds to import.
multiprocessing.set_forkserver_preload(["mixer.torch"])
