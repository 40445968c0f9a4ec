"""Headers of npy files, parsed by one thread at a time.

numpy has Python parse them, and Python 3.11 counts how deep its parser is for all threads together: of two at once one
may get a SystemError (python/cpython#106905).
"""

from __future__ import annotations

import threading

ALONE = threading.Lock()
