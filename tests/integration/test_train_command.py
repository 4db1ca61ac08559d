"""`gpucost-yolov9 train` with the flags of the reference, on small pictures."""

import subprocess
import sys

import pytest
import yaml
from tiny_training import ROOT

from remote.yolov9 import commands, train_command
from remote.yolov9.config import TrainConfig

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_command.os, "environ", dict(train_command.os.environ))


@pytest.fixture
def asked_for(monkeypatch):
    """What would be trained: the configuration of the run, instead of the training."""
    runs = []

    def noted(argv):
        runs.append(TrainConfig.from_file(train_command.Path(argv[0])))
        return 0

    monkeypatch.setattr(train_command.train, "main", noted)
    return runs


SMALL = ("--cfg", "yolov9-t.yaml", "--img", "64", "--batch", "4", "--epochs", "1", "--device", "cpu", "--workers", "0")


def test_a_run_lies_in_its_folder_and_the_next_one_beside_it(squares, tmp_path):
    argv = ("train", "--data", str(squares / "data.yaml"), *SMALL)
    assert commands.main([*argv, "--weights", ""]) == 0
    folder = tmp_path / "runs/train/exp"
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written >= {"weights/last.pt", "weights/best.pt", "results.csv", "opt.yaml", "hyp.yaml"}
    assert written >= {
        "labels.jpg",
        "train_batch0.jpg",
        "train_batch2.jpg",
        "val_batch0_labels.jpg",
        "val_batch0_pred.jpg",
    }
    assert written >= {"results.png", "confusion_matrix.png", "PR_curve.png", "F1_curve.png"}
    assert len([name for name in written if name.startswith("events.")]) == 1
    assert commands.main([*argv, "--weights", str(folder / "weights/best.pt"), "--name", "exp"]) == 0
    assert (tmp_path / "runs/train/exp2/weights/best.pt").is_file()


def test_without_the_packages_for_pictures_it_trains_all_the_same_with_one_note(squares, tmp_path, monkeypatch, caplog):
    for package in ("matplotlib", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, package, None)
    assert commands.main(["train", "--data", str(squares), *SMALL]) == 0
    assert (tmp_path / "runs/train/exp/weights/best.pt").is_file()
    assert (tmp_path / "runs/train/exp/train_batch0.jpg").is_file()
    assert len([m for m in caplog.messages if "are not made" in m]) == 1


def test_noplots_makes_none(squares, tmp_path):
    assert commands.main(["train", "--data", str(squares), *SMALL, "--noplots"]) == 0
    assert not [path.name for path in (tmp_path / "runs/train/exp").iterdir() if path.suffix in (".jpg", ".png")]


def test_it_goes_on_with_the_newest_run_as_that_was_begun(squares, tmp_path):
    assert commands.main(["train", "--data", str(squares), *SMALL, "--seed", "3"]) == 0
    folder = tmp_path / "runs/train/exp"
    settings = yaml.safe_load((folder / "opt.yaml").read_text())
    (folder / "opt.yaml").write_text(yaml.safe_dump({**settings, "epochs": 2}))
    assert commands.main(["train", "--resume"]) == 0
    assert len((folder / "results.csv").read_text().splitlines()) == 3
    assert not (tmp_path / "runs/train/exp2").exists()


def test_every_flag_reaches_the_training(squares, asked_for, caplog):
    caplog.set_level("INFO")
    argv = (
        f"train --workers 8 --device 0 --batch 16 --data {squares} --img 640 --cfg models/detect/yolov9-c.yaml"
        " --name yolov9-c --min-items 1 --epochs 500 --close-mosaic 15 --amp --accumulate 4 --sync-bn --optimizer SGD"
        " --cos-lr --cache ram --project out --exist-ok --patience 30 --seed 7 --single-cls --freeze 3 --multi-scale"
        " --noval --rect --save-period 10 --label-smoothing 0.1 --local_rank 0 --hyp hyp.scratch-high.yaml --weights"
    ).split()
    argv.append("")
    assert commands.main(argv) == 0
    (config,) = asked_for
    assert (config.model, config.weights, config.batch, config.image_size) == ("yolov9-c", None, 16, 640)
    assert (config.workers, config.device, config.min_items, config.epochs) == (8, "cuda", 1, 500)
    assert (config.close_mosaic, config.amp, config.accumulate, config.sync_bn) == (15, "auto", 4, True)
    assert (config.optimizer, config.lr_schedule, config.patience, config.seed) == ("sgd", "cosine", 30, 7)
    assert (config.single_cls, config.freeze, config.multi_scale) == (True, (0, 1, 2), True)
    assert (config.val_interval, config.resume, config.save_period) == (500, False, 10)
    assert (config.hyp["lr0"], config.hyp["mixup"], config.hyp["scale"]) == (0.01, 0.15, 0.9)
    assert config.output == train_command.Path("out/yolov9-c")
    assert train_command.os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    without = [m for m in caplog.messages if "without effect" in m]
    assert without == ["without effect here: --rect, --label-smoothing, --local_rank"]


def test_several_gpus_get_a_process_each(squares, monkeypatch):
    became = []
    monkeypatch.setattr(train_command.os, "execv", lambda *argv: became.append(argv))
    monkeypatch.setattr(train_command.train, "main", lambda _argv: 0)
    assert commands.main(["train", "--data", str(squares), "--cfg", "gelan-s", "--device", "0,2", "--batch", "8"]) == 0
    ((program, argv),) = became
    assert program == sys.executable
    assert argv[-4:] == ["2", "-m", "remote.yolov9.train", "runs/train/exp/opt.yaml"]
    assert train_command.os.environ["CUDA_VISIBLE_DEVICES"] == "0,2"


USUAL = {"lr0": 0.01, "lrf": 0.01, "momentum": 0.937, "weight_decay": 0.0005, "warmup_epochs": 3.0, "box": 7.5}


@pytest.mark.parametrize(
    ("file", "flags", "optimizer", "hyp"),
    [
        pytest.param({**USUAL, "mixup": 0.1}, (), "auto", {"mixup": 0.1}, id="the usual values leave the choice"),
        pytest.param({**USUAL, "lr0": "1e-3"}, (), "sgd", {**USUAL, "lr0": 0.001}, id="other values are for SGD"),
        pytest.param({"lr0": 0.002}, ("--optimizer", "AdamW"), "adamw", {"lr0": 0.002}, id="named with its values"),
        pytest.param({"fl_gamma": 0.0, "new": 1, "scale": 0.5}, (), "auto", {"scale": 0.5}, id="the rest is told"),
    ],
)
def test_a_file_of_hyper_parameters(squares, asked_for, tmp_path, caplog, file, flags, optimizer, hyp):
    (tmp_path / "hyp.yaml").write_text(yaml.safe_dump(file))
    argv = ["train", "--data", str(squares), "--cfg", "gelan-t", "--hyp", "hyp.yaml", *flags]
    assert commands.main(argv) == 0
    hyp = {key: value for key, value in hyp.items() if key != "box"}
    assert (asked_for[0].optimizer, asked_for[0].hyp) == (optimizer, hyp)
    told = [m for m in caplog.messages if m.startswith("warning: without effect")]
    expected = {"box", "fl_gamma", "new"} & set(file)
    assert told == (
        [f"warning: without effect here: {', '.join(n for n in file if n in expected)}"] if expected else []
    )


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("--cfg yolov9-t", "error: --data is missing"),
        ("--data {data}", "error: --cfg is missing: which model, such as yolov9-s"),
        ("--data {data} --cfg yolov8n.yaml", "error: cfg is 'yolov8n.yaml': no such file"),
        ("--data {data} --cfg yolov9-t --img 100", "error: image_size is 100: expected a multiple of 32"),
        ("--data {data} --cfg yolov9-t --optimizer LION", "error: --optimizer LION: expected auto, SGD, Adam or AdamW"),
        ("--data {data} --cfg yolov9-t --device 0,x", "error: --device 0,x: expected cpu, or numbers of GPUs"),
        ("--data {data} --cfg yolov9-t --device 0,1 --batch 5", "error: --batch 5: not a multiple of the 2 GPUs"),
        ("--data {data} --cfg yolov9-t --hyp none.yaml", "error: --hyp none.yaml: No such file or directory"),
        ("--data {data} --cfg yolov9-t --amp yes", "error: amp is 'yes'; "),
        ("--data {data} --weights none.pt", "error: "),
        ("--data {data} --cfg yolov9-t --evolve", "error: --evolve: "),
        ("--resume", "error: --resume: there is no last.pt in runs/train"),
        ("--resume elsewhere/weights/last.pt", "error: --resume: elsewhere/weights/last.pt is not there"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_no_folder(squares, tmp_path, caplog, argv, said):
    assert commands.main(["train", *argv.format(data=squares).split()]) == 2
    assert caplog.messages[-1].startswith(said)
    assert not (tmp_path / "runs").exists()


def test_under_torchrun_it_says_how_to_be_started(squares, monkeypatch, caplog):
    monkeypatch.setitem(train_command.os.environ, "WORLD_SIZE", "2")
    assert commands.main(["train", "--data", str(squares), "--cfg", "gelan-t"]) == 2
    assert "start this command once, without torchrun" in caplog.messages[-1]


def test_the_flags_are_told():
    argv = [sys.executable, "-m", "remote.yolov9.commands", "train", "--help"]
    told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for flag in (
        "--workers",
        "--device",
        "--batch",
        "--data",
        "--img",
        "--cfg",
        "--weights",
        "--name",
        "--hyp",
        "--min-items",
    ):
        assert flag in told
