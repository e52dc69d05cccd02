"""What the formulas need to know of a Transformer, whatever its config calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1 and appendix C).

    Queries are compressed to ``query_rank`` features (not at all if None), keys and values together
    to ``rank``; ``rotary`` features of every key are shared by all heads.
    """

    query_rank: int | None
    rank: int
    rotary: int


@dataclass(frozen=True)
class Attention:
    """Self-attention of one block. ``window`` is shorter than the sequence, or None."""

    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    #: Features of each head that are rotated; 0 without rotary positions.
    rotary: int
    window: int | None = None
    causal: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    dropout: bool = False
    #: A norm over each head of Q and of K.
    head_norms: bool = False
    #: Scores pass through a tanh before the softmax.
    softcap: bool = False
    latent: Latent | None = None


@dataclass(frozen=True)
class Mlp:
    """A feed-forward part; gated ones have a second matrix beside the first."""

    inner: int
    gated: bool
    bias: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture of gated experts; ``shared_inner`` is the size of the expert of every token."""

    count: int
    per_token: int
    inner: int
    shared_inner: int = 0
    #: The shared expert's output is scaled by a learned gate.
    shared_gate: bool = False
    router_bias: bool = False


class Block(NamedTuple):
    """One block; equal blocks cost the same."""

    attention: Attention
    mlp: Mlp | Experts


@dataclass(frozen=True)
class Architecture:
    """What the formulas need to know of a Transformer."""

    hidden: int
    vocabulary: int
    blocks: tuple[Block, ...]
    tied: bool
    #: Learned position embeddings; 0 with rotary ones.
    positions: int = 0
    #: Learned embeddings of token types.
    token_types: int = 0
    #: Weights of a norm per feature: 1 for RMSNorm, 2 for LayerNorm.
    norm_weights: int = 1
    #: Norms before, after, or on both sides of each half of a block.
    norms: Literal["before", "after", "both"] = "before"
    #: Attention and MLP read the same input, and their outputs are added.
    parallel: bool = False
    embedding_dropout: bool = False
    hidden_dropout: bool = False
    #: Logits pass through a tanh.
    softcap: bool = False
    #: A masked language model: a norm after the embedding, a dense layer before the norm of the
    #: head, a bias for each word.
    masked: bool = False
    notes: tuple[str, ...] = ()
