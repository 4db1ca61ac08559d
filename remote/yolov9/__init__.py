"""YOLOv9 in training form: model, loss, data, recipe and loop. Written from the paper (arXiv 2402.13616).

Knows nothing of clouds, storage or the agent: it reads a configuration file and a data set, and writes into one folder.
"""

import os

# Before torch loads its OpenMP runtime. Threads that spin long at barriers make a step up to twenty times slower as
# soon as another process wants a core, as agent and transfer program do; threads that sleep at once make it 1.5 to 2
# times slower on idle cores. Some microseconds of spinning cost neither.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
