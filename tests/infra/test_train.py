"""A model trained on windows that came all the way has, killed and run again, the losses of one that never died."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import mixer
from mixer.config import config_from

SCRIPT = Path(__file__).parents[2] / "infra" / "train.py"
VOCABULARY = 400
STEPS = 12
TEXT = Path(SCRIPT).read_text()


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of windows over real text, from files that are not Parquet."""
    folder = tmp_path_factory.mktemp("windows")
    for name, text in {"docs": SCRIPT.parents[1] / "README.md", "code": SCRIPT}.items():
        (folder / f"{name}.txt").write_text(text.read_text())
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    window = {"context_length": 16, "tokenizer": str(folder / "tokenizer.json"), "end_of_text": "<end>"}
    config = config_from(
        {
            "output": str(folder / "out"),
            "batch_size": 8,
            "batches": 24,
            "batches_per_shard": 5,
            "on_exhausted": "repeat",
            "datasets": {
                "docs": {"path": str(folder / "docs.txt"), "document": "paragraph", "weight": 3, "window": window},
                "code": {"path": str(folder / "code.txt"), "weight": 1, "shuffle": "block", "window": window},
            },
        }
    )
    mixer.build(config)
    return config.output


def command(output: str, checkpoint: Path, *, workers: int) -> list[str]:
    numbers = {"steps": STEPS, "every": 3, "workers": workers, "vocabulary": VOCABULARY}
    options = [word for name, number in numbers.items() for word in (f"--{name}", str(number))]
    return [sys.executable, str(SCRIPT), output, "--checkpoint", str(checkpoint), *options]


def losses(said: str) -> dict[int, str]:
    """Return the loss of each step to the last bit; a step that was made twice must have had it twice."""
    found: dict[int, str] = {}
    for step, loss in re.findall(r"^step (\d+) loss \S+ (\S+)$", said, re.MULTILINE):
        assert found.setdefault(int(step), loss) == loss, f"step {step}"
    return found


@pytest.fixture(scope="module")
def unbroken(windows: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    checkpoint = tmp_path_factory.mktemp("unbroken") / "checkpoint.pt"
    found = losses(
        subprocess.run(command(windows, checkpoint, workers=0), check=True, capture_output=True, text=True).stdout
    )
    assert list(found) == list(range(1, STEPS + 1))
    assert len(set(found.values())) == STEPS
    return found


@pytest.mark.crash
def test_a_training_that_is_killed_and_goes_on_has_the_same_losses_to_the_last_bit(
    windows: str, unbroken: dict[int, str], tmp_path: Path
) -> None:
    killed_after = 5
    # Read in another process than the unbroken one was, which changes nothing either.
    call = command(windows, tmp_path / "checkpoint.pt", workers=1)
    said = ""
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as first:
        assert first.stdout is not None
        for line in first.stdout:
            said += line
            if line.startswith(f"step {killed_after} "):
                first.send_signal(signal.SIGKILL)
                break
    assert first.returncode == -signal.SIGKILL, said
    second = subprocess.run(call, check=False, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    # It went on, and did not begin again.
    assert 1 < min(losses(second.stdout)) <= killed_after + 1
    assert losses(said + second.stdout) == unbroken


def test_more_steps_than_the_run_has_are_refused_before_the_first(windows: str, tmp_path: Path) -> None:
    asked = [word if word != str(STEPS) else "25" for word in command(windows, tmp_path / "none.pt", workers=0)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "--steps: expected at most 24, as the run ends there, found 25\n"
