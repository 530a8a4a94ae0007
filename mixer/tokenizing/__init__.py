"""Text into token ids: whatever encodes it, many documents at once, each closed by the end-of-text id exactly once."""

from __future__ import annotations

from mixer.tokenizing.base import Encoded, Tokenizer, checked
from mixer.tokenizing.opening import open_tokenizer

__all__ = ["Encoded", "Tokenizer", "checked", "open_tokenizer"]
