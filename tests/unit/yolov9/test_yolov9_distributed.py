import pytest
import torch

from remote.yolov9.config import ConfigError
from remote.yolov9.distributed import Ranks, choose_device


@pytest.mark.parametrize("environment", [{}, {"LOCAL_RANK": "0"}, {"LOCAL_RANK": "3", "WORLD_SIZE": "1", "RANK": "0"}])
def test_a_world_of_one_is_one_process_whatever_else_is_set(environment):
    assert Ranks.from_environment(environment) == Ranks(0, 1, 0)


def test_torchrun_says_who_we_are():
    ranks = Ranks.from_environment({"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"})
    assert (ranks.rank, ranks.world, ranks.local, ranks.leads) == (3, 4, 1, False)


def test_alone_every_call_is_a_plain_function():
    ranks, cpu = Ranks(), torch.device("cpu")
    ranks.open(cpu)
    assert ranks.gather(5) == [5]
    assert ranks.any(True, cpu)
    assert not ranks.any(False, cpu)
    ranks.broadcast([torch.ones(1)])
    ranks.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused_and_auto_takes_the_cpu():
    assert choose_device("auto", 0) == torch.device("cpu")
    with pytest.raises(ConfigError, match="device is 'cuda': process 0 sees 0 CUDA devices"):
        choose_device("cuda", 0)
