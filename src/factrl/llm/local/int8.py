"""The odds of one-word answers by a GGUF model in torch, with products of 8-bit integers.

A judge that is read by its next word's probabilities computes prompts and writes nothing, so all its time is
matrix products.  Processors with VNNI or AMX multiply 8-bit integers several times as fast as anything that
llama.cpp's portable build does.  Weights get one scale a row, activations one a token; before, each column
is balanced between the two (SmoothQuant, arXiv:2211.10438, equation 4 with alpha 0.5), by what the prompt's
own first part shows of the activations.  Sums of integers are exact, so what a prompt is computed beside
moves its numbers by less than 1e-4.

A model is prepared once for one such first part, instructions and examples, whose state is kept with it, in
`factrl.llm.models.cache_folder()`: for 1.5B parameters 2.3 GB, and one to two minutes of a CPU.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from factrl.errors import ModelError
from factrl.llm import models
from factrl.llm.local.llama import JUDGE
from factrl.runs.progress import Progress
from factrl.text import encodable

ROWS = 256  # tokens that are computed together: of more, what stands between two products leaves the cache
_FORM = 1  # of the files; another one is another folder
_PRODUCTS = {  # what multiplies at once, by GGUF's names, and a letter for it
    "a": ("attn_q", "attn_k", "attn_v"),
    "o": ("attn_output",),
    "f": ("ffn_gate", "ffn_up"),
    "d": ("ffn_down",),
}
Product = Callable[[torch.Tensor], torch.Tensor]


@functools.cache
def shared_model(prefix: str) -> Int8Model:
    """The judge that factrl downloads, prepared for a prefix, loaded once for all in this process."""
    return Int8Model(JUDGE, prefix)


class Shape(NamedTuple):
    """Of a network: its layers, heads of queries and of keys, size of a head, and constants."""

    layers: int
    heads: int
    pairs: int
    size: int
    epsilon: float
    base: float  # of the rotary positions
    apart: bool  # numbers that are rotated together stand beside each other, and not half a head apart


def available() -> bool:
    """Whether this processor has such products and what is needed to make the files is installed."""
    if not (find_spec("gguf") and find_spec("transformers") and torch.cpu._is_vnni_supported()):
        return False
    extreme = torch.full((32, 64), 127, dtype=torch.int8)
    return bool((_product(-extreme, extreme.t()) == -64 * 127 * 127).all())


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch._int_mm(a, b)  # pyright: ignore[reportPrivateImportUsage]


class Int8Model:
    """A GGUF model of the kinds qwen2 or llama, prepared for one beginning; safe to use from threads.

    Args:
        model: as for `LlamaModel`.
        prefix: what each prompt begins with, role tokens included.
        n_ctx: tokens of a prompt, its beginning included, at most.

    Attributes:
        identity: name and fingerprint of the weights, and how they are computed with.

    Raises:
        ModelError: the model is not there, or of another kind.
    """

    def __init__(self, model: str | Path, prefix: str, *, n_ctx: int = 4096) -> None:
        path = models.get(model)
        folder = _prepared(path, prefix)
        self.identity = f"{models.identity(path)} int8 {_FORM}"
        self.prefix = prefix
        self.n_ctx, self._lock = n_ctx, threading.Lock()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        with safe_open(folder / "weights.safetensors", "pt") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
            self.shape = Shape(*json.loads(file.metadata()["shape"]))
        self._words, self._output, self._last = held["read"], held["said"], held["norm"]
        self._layers = [
            _Layer(
                self.shape, {a: _Product(held, f"{n}.{a}") for a in _PRODUCTS}, held[f"{n}.norms"].unbind()
            )
            for n in range(self.shape.layers)
        ]
        self._past = [(held[f"{n}.keys"], held[f"{n}.values"]) for n in range(self.shape.layers)]

    def letter_logprobs(
        self, prefix: str, prompts: Sequence[str], letters: Sequence[str] = ("A", "B"), *, suffix: str = ""
    ) -> np.ndarray:
        """How likely each letter is as the first token after `prefix + prompt + suffix`, if one of them is.

        As `LlamaModel.letter_logprobs`, but for that "if": the other words' odds are not computed.  What
        prompts have in common with the one before, in the order of their tokens, is computed once.

        Raises:
            ValueError: a letter is not one token, or the prefix is not what the model is prepared for.
        """
        if prefix != self.prefix:
            raise ValueError("this model is prepared for another prefix")
        firsts = [self._letter(letter) for letter in letters]
        last = self._tokens(suffix, special=True)
        read = [self._tokens(prompt, special=False) + last for prompt in prompts]
        logprobs = np.full((len(prompts), len(letters)), np.nan)
        behind = self._past[0][0].shape[1]
        with self._lock, torch.inference_mode():
            wanted = self._output[firsts].float()
            for batch in batches(read, self.n_ctx - behind):
                hidden = self._read(batch, behind)[[own[-1] for own in batch.own]]
                logits = _norm(hidden, self._last, self.shape.epsilon) @ wanted.t()
                logprobs[batch.rows] = logits.double().log_softmax(1).numpy()
        return logprobs

    def _read(self, batch: Batch, behind: int) -> torch.Tensor:
        """The last layer's output, (rows, width)."""
        x = self._words[batch.tokens].float()
        turn = _turn(self.shape, [behind + place for place in batch.places()])
        for layer, past in zip(self._layers, self._past, strict=True):
            x, _, _ = layer(x, turn, batch, past)
        return x

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        return len(self._tokens(text, special=False))

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        self._tokenizer.encode_special_tokens = not special  # a prompt's are plain text
        return self._tokenizer.encode(encodable(text), add_special_tokens=False).ids

    def _letter(self, letter: str) -> int:
        ids = self._tokens(letter, special=False)
        if len(ids) != 1:
            raise ValueError(f"{letter!r} is {len(ids)} tokens for {self.identity}; an answer has to be one")
        return ids[0]


class Batch(NamedTuple):
    """Prompts that are computed at once, as rows of tokens without padding.

    Attributes:
        rows: which prompts.
        tokens: of all rows: of each prompt what the one before does not begin with.
        own: for each prompt the rows of all its tokens, the shared ones first.
        new: how many of them are its own.
    """

    rows: list[int]
    tokens: list[int]
    own: list[list[int]]
    new: list[int]

    def places(self) -> list[int]:
        """Of every row: how many tokens stand before it."""
        ends = zip(self.own, self.new, strict=True)
        return [place for own, new in ends for place in range(len(own) - new, len(own))]


def batches(read: Sequence[list[int]], room: int) -> Iterator[Batch]:
    """Prompts in the order of their tokens, in batches of about `ROWS`, but for empty and too long ones."""
    batch, before = Batch([], [], [], []), list[int]()
    for row in sorted((row for row, ids in enumerate(read) if 0 < len(ids) <= room), key=read.__getitem__):
        ids = read[row]
        if batch.rows and len(batch.tokens) + len(ids) > ROWS:
            yield batch
            batch, before = Batch([], [], [], []), []
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids[:-1], before, strict=False)))
        here = len(batch.tokens)
        batch.rows.append(row)
        batch.tokens.extend(ids[same:])
        batch.own.append([*(batch.own[-1][:same] if same else ()), *range(here, len(batch.tokens))])
        batch.new.append(len(ids) - same)
        before = ids
    if batch.rows:
        yield batch


class _Product:
    """A product with the integers that `_Measured.packed` gives."""

    def __init__(self, held: Mapping[str, torch.Tensor], name: str) -> None:
        self.weight, self.scale = held[f"{name}.weight"].t(), held[f"{name}.scale"]
        self.balance, self.bias = held[f"{name}.balance"], held.get(f"{name}.bias")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.balance
        step = torch.maximum(x.amax(1, keepdim=True), -x.amin(1, keepdim=True)).clamp_(min=1e-9).div_(127)
        y = _product(x.mul_(1 / step).round_().to(torch.int8), self.weight).float()
        y = y.mul_(step).mul_(self.scale)
        return y if self.bias is None else y.add_(self.bias)


class _Layer:
    """A layer of a decoder: products by the letters of `_PRODUCTS`, and norms before the first and third."""

    def __init__(self, shape: Shape, products: Mapping[str, Product], norms: Sequence[torch.Tensor]) -> None:
        self.shape, self.products, self.norms = shape, products, norms

    def __call__(
        self, x: torch.Tensor, turn: Sequence[torch.Tensor], batch: Batch, past: Sequence[torch.Tensor] = ()
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The layer's output for `x`, (rows, width), and the keys and values of these rows."""
        products, epsilon = self.products, self.shape.epsilon
        queries, keys, values = self._heads(products["a"](_norm(x, self.norms[0], epsilon)), turn)
        x = x + products["o"](_attend(queries, keys, values, batch, past))
        gate, up = products["f"](_norm(x, self.norms[1], epsilon)).chunk(2, 1)
        return x + products["d"](silu(gate).mul_(up)), keys, values

    def _heads(self, x: torch.Tensor, turn: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Queries, keys and values, (heads, rows, size), the first two turned by their places."""
        size, apart = self.shape.size, self.shape.apart
        cos, sin = turn
        parts = []
        for count in (self.shape.heads, self.shape.pairs, self.shape.pairs):
            y = x[:, : count * size].reshape(len(x), count, size).transpose(0, 1)
            x = x[:, count * size :]
            if len(parts) < 2:
                a, b = (y[..., ::2], y[..., 1::2]) if apart else y.chunk(2, -1)
                y = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
            parts.append(y)
        return parts


def _norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return (x * x.square().mean(1, keepdim=True).add_(epsilon).rsqrt_()).mul_(weight)


def _turn(shape: Shape, places: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary positions, (rows, size / 2)."""
    steps = shape.base ** -(torch.arange(0, shape.size, 2) / shape.size)
    angles = torch.tensor(places, dtype=torch.float32)[:, None] * steps
    return angles.cos(), angles.sin()


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: Batch,
    past: Sequence[torch.Tensor],
) -> torch.Tensor:
    """What each prompt's new rows see: what all prompts begin with, and its own rows up to them."""
    seen = []
    for own, new in zip(batch.own, batch.new, strict=True):
        k, v = keys[:, own], values[:, own]
        if past:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        mask = torch.ones(new, k.shape[1], dtype=torch.bool).tril(k.shape[1] - new)
        rows = queries[None, :, own[-new:]]
        seen.append(scaled_dot_product_attention(rows, k[None], v[None], attn_mask=mask, enable_gqa=True)[0])
    return torch.cat(seen, 1).transpose(0, 1).reshape(queries.shape[1], -1)


# -- Preparing: once for a model and a prefix ---------------------------------------------------------


def _prepared(path: Path, prefix: str) -> Path:
    """The folder with the 8-bit weights; made where it is not there yet."""
    key = f"{models.identity(path)} {_FORM} {prefix}"
    folder = models.cache_folder() / "int8" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.is_dir():
        models.private_folder(folder.parent)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            _prepare(path, prefix, made)
            made.replace(folder)
        except ModelError:  # is an OSError too
            raise
        except OSError as error:
            if not folder.is_dir():  # else another process was first
                remedy = "FACTRL_CACHE names another place"
                raise ModelError(f"{path} could not be prepared in {folder}: {error}; {remedy}") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _prepare(path: Path, prefix: str, folder: Path) -> None:
    """Layer by layer: what the prefix does to it in float32, then its weights as integers."""
    import transformers

    reader = _Reader(path)
    shape = reader.shape
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).backend_tokenizer
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = tokenizer.encode(encodable(prefix), add_special_tokens=False).ids
    batch = Batch([0], tokens, [[*range(len(tokens))]], [len(tokens)])
    output = "output.weight" if "output.weight" in reader else "token_embd.weight"
    held = {"read": reader("token_embd.weight").half(), "said": reader(output).half()}
    held["norm"] = reader("output_norm.weight")
    with (
        torch.inference_mode(),
        Progress(f"prepare {path.stem} for this processor, once", shape.layers) as progress,
    ):
        x, turn = held["read"][tokens].float(), _turn(shape, range(len(tokens)))
        for n in progress.over(range(shape.layers)):
            products = {letter: _Measured(reader, n, names) for letter, names in _PRODUCTS.items()}
            norms = [reader(f"blk.{n}.{name}_norm.weight") for name in ("attn", "ffn")]
            x, keys, values = _Layer(shape, products, norms)(x, turn, batch)
            held |= {f"{n}.keys": keys.contiguous(), f"{n}.values": values.contiguous()}
            held |= {f"{n}.norms": torch.stack(norms)}
            held |= {f"{n}.{a}.{name}": value for a, one in products.items() for name, value in one.packed()}
    save_file(held, folder / "weights.safetensors", {"shape": json.dumps(shape)})


class _Measured:
    """A product in float32 that notes how large each column of what it multiplies gets."""

    def __init__(self, reader: _Reader, layer: int, names: Sequence[str]) -> None:
        self.weight = torch.cat([reader(f"blk.{layer}.{name}.weight") for name in names])
        biases = [
            reader(f"blk.{layer}.{name}.bias") for name in names if f"blk.{layer}.{name}.bias" in reader
        ]
        self.bias = torch.cat(biases) if biases else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.largest = x.abs().amax(0)
        return linear(x, self.weight, self.bias)

    def packed(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What `_Product` reads."""
        # A column that the prefix leaves at 0 may be larger elsewhere.
        largest = self.largest.clamp(min=0.1 * float(self.largest.mean()) + 1e-9)
        balance = (self.weight.abs().amax(0).clamp(min=1e-5) / largest).sqrt()
        weight = self.weight / balance
        scale = weight.abs().amax(1).clamp(min=1e-9) / 127
        yield "weight", torch.round(weight / scale[:, None]).to(torch.int8)
        yield from {"scale": scale, "balance": balance}.items()
        if self.bias is not None:
            yield "bias", self.bias


class _Reader:
    """Tensors of a GGUF file by name, in float32.

    Raises:
        ModelError: it is no GGUF file, or of a network that is not known here.
    """

    def __init__(self, path: Path) -> None:
        import gguf

        try:
            reader = gguf.GGUFReader(path)
            kind = reader.fields["general.architecture"].contents()
            fields = {key.removeprefix(f"{kind}."): field for key, field in reader.fields.items()}
            heads = fields["attention.head_count"].contents()
            self.shape = Shape(
                layers=fields["block_count"].contents(),
                heads=heads,
                pairs=fields["attention.head_count_kv"].contents(),
                size=fields["embedding_length"].contents() // heads,
                epsilon=fields["attention.layer_norm_rms_epsilon"].contents(),
                base=fields["rope.freq_base"].contents(),
                apart=kind == "llama",
            )
        except (ValueError, KeyError, IndexError) as error:
            raise ModelError(f"{path} could not be read as a GGUF model: {error}") from error
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        if kind not in ("llama", "qwen2"):
            raise ModelError(f"{path} is of the kind {kind}; read are qwen2 and llama")

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __call__(self, name: str) -> torch.Tensor:
        import gguf

        tensor = self.tensors[name]
        return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
