"""Small tokenizers that tests train themselves, on texts of Python's own library."""

from __future__ import annotations

import base64
import sysconfig
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
VOCABULARY = 700


@cache
def texts(pattern: str = "a*.py") -> tuple[str, ...]:
    """Return modules of the standard library, in the order of their names."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return tuple(path.read_text(encoding="utf-8") for path in sorted(library.glob(pattern)))


@cache
def tokenizer_json() -> str:
    """Return a byte-level BPE tokenizer, as the library saves it; it also asks for cuts, filling and a first token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts("a[bs]*.py"), "Grüße, žluťoučký kůň, 日本語 🙂"], trainer)
    tokenizer.enable_truncation(64)
    tokenizer.enable_padding(pad_id=1, length=80)
    return tokenizer.to_str()


def plain() -> Tokenizer:
    """Return the same tokenizer as the library itself is used, without cuts and filling."""
    tokenizer = Tokenizer.from_str(tokenizer_json())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def ids_of(text: str) -> list[int]:
    """Return the ids of a text that is encoded alone."""
    found: list[int] = plain_once().encode(text, add_special_tokens=False).ids
    return found


@cache
def plain_once() -> Tokenizer:
    """Return one `plain` tokenizer for all tests."""
    return plain()


def end_id() -> int:
    """Return the end-of-text id."""
    found = plain_once().token_to_id(END)
    assert found is not None
    return int(found)


@cache
def ranks_file() -> bytes:
    """Return a ``.tiktoken`` file: all bytes, and some of what texts often hold."""
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [b"th", b"he", b"in", b"re", b"  ", b"    ", b"de", b"def", b"se", b"self", b"  in", b"end", b"text"]
    return b"".join(base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate(dict.fromkeys(tokens)))


def save(folder: Path) -> str:
    """Write the tokenizer; return where it is."""
    path = folder / "tokenizer.json"
    path.write_text(tokenizer_json(), encoding="utf-8")
    return str(path)


def encode_words(texts: list[str]) -> list[list[int]]:
    """Encode words by their lengths: a function as users write one."""
    return [[min(len(word), 98) for word in text.split()] for text in texts]


def encode_one_too_few(texts: list[str]) -> list[list[int]]:
    """Encode all texts but the last."""
    return encode_words(texts)[:-1]


def encode_with_ends(texts: list[str]) -> list[list[int]]:
    """Encode words, and close each text with the id 99, which a function is not to do."""
    return [[*ids, 99] for ids in encode_words(texts)]


def encode_nothing(texts: list[str]) -> list[list[int]]:
    """Fail."""
    raise RuntimeError(f"{len(texts)} texts are too many")
