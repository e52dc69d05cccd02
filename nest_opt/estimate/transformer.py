"""Transformers from their published configuration, in closed form.

Layers: ``embedding``, ``block.0`` .. ``block.n-1`` and ``head`` (final norm, vocabulary projection,
loss); with granularity ``half`` each block is ``block.i.attention`` and ``block.i.mlp``. Everything
is exact: bytes are integers, seconds are fractions of the device's numbers. The notation is that of
:mod:`nest_opt.estimate.parts`.

Sources:

- Shoeybi et al. 2019 (arXiv 1909.08053), section 3: what is sharded by ``t``, the two all-reduces
  per block and direction, vocabulary-parallel embedding, head and cross-entropy;
- Korthikanti et al. 2022 (arXiv 2205.05198), section 4: bytes kept per block (equations 1, 2, 4),
  selective recomputation (equation 6), sequence parallelism, the embedding and the head (4.3);
- Ainslie et al. 2023 (arXiv 2305.13245): grouped key-value heads; Shazeer 2020 (arXiv 2002.05202):
  gated MLPs; DeepSeek-AI 2024 (arXiv 2405.04434), appendix C: latent attention; Beltagy et al.
  2020 (arXiv 2004.05150), section 3.1: attention windows;
- Shazeer et al. 2017 (arXiv 1701.06538), Lepikhin et al. 2020 (arXiv 2006.16668), Fedus et al. 2021
  (arXiv 2101.03961): routed experts, their dispatch, their capacity; DeepSeek-AI 2024 (arXiv
  2401.06066): shared experts;
- Dao 2023 (arXiv 2307.08691): memory and FLOPs of flash attention;
- Liu et al. 2023 (arXiv 2310.01889): ring attention over the context axis;
- Williams et al. 2009 (doi 10.1145/1498765.1498785): the roofline.

Weights, activations and their gradients take 2 bytes, logits and router scores 4, dropout masks 1,
token ids 8.

Not modelled: optimizer step, kernel launches, allocator fragmentation, communication buffers; the
cosine and sine tables of rotary embeddings and the row statistics of norms; the all-reduce of norm
gradients over the tensor group with sequence parallelism (once per batch); scatter-gather of what
pipeline stages exchange; unbalanced experts, auxiliary losses, the second sort of rows that arrive
from several ranks; multi-token prediction modules; BERT's pooler and next-sentence prediction; the
single all-reduce that attention and MLP in parallel (GPT-NeoX) could share. With sequence
parallelism Megatron-LM gathers the input of column-parallel products a second time in the backward
pass, behind the product that computes the gradient of that input (Korthikanti et al., section
4.2.2); as in their count of communication, it is left out.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from nest_opt.errors import InputError
from nest_opt.estimate.architecture import Architecture, Attention, Block, Experts, Mlp
from nest_opt.estimate.attention import attention_part
from nest_opt.estimate.config import read_config
from nest_opt.estimate.ends import embedding_part, head_part, inputs_kept, word_matrix
from nest_opt.estimate.mlp import experts_part, mlp_part
from nest_opt.estimate.parts import Part, Shard, residual_part, shard_of
from nest_opt.estimate.roofline import HALF, Roofline, roofline_of
from nest_opt.estimate.table import LayerCost, LayerTable
from nest_opt.plan import Template
from nest_opt.problem import ConfigModel, Device, exact


def _why_not(arch: Architecture, sequence: int, template: Template) -> str:
    """Why a model cannot use a template; empty if it can."""
    t, c = template.tensor, template.context
    kinds = dict.fromkeys(arch.blocks)
    if template.expert > 1 and not any(isinstance(kind.mlp, Experts) for kind in kinds):
        return "the model has no experts"
    for kind in kinds:
        reason = _why_not_attention(kind.attention, t) or _why_not_mlp(kind.mlp, template)
        if reason:
            return reason
    if sequence % c:
        return f"context degree {c} does not divide the sequence of {sequence}"
    if template.sequence_parallel and (sequence // c) % t:
        part = f"{sequence // c}" + (f" (a context share of {sequence})" if c > 1 else "")
        return f"tensor degree {t} does not divide the sequence of {part} for sequence parallelism"
    return ""


def _why_not_attention(attention: Attention, t: int) -> str:
    if attention.heads % t:
        return f"tensor degree {t} does not divide the {attention.heads} attention heads"
    if attention.kv_heads % t and t % attention.kv_heads:
        return (
            f"tensor degree {t} neither divides the {attention.kv_heads} key-value heads nor is a "
            "multiple of them"
        )
    return ""


def _why_not_mlp(mlp: Mlp | Experts, template: Template) -> str:
    t, e = template.tensor, template.expert
    if isinstance(mlp, Mlp):
        return (
            f"tensor degree {t} does not divide the MLP size {mlp.inner}" if mlp.inner % t else ""
        )
    if mlp.count % e:
        return f"expert degree {e} does not divide the {mlp.count} experts"
    for what, inner in (("expert size", mlp.inner), ("shared expert size", mlp.shared_inner)):
        if inner % t:
            return f"tensor degree {t} does not divide the {what} {inner}"
    return ""


def _halves(
    arch: Architecture, kind: Block, on: Shard, flash: bool, capacity: Fraction
) -> tuple[Part, Part]:
    """The two halves of a block: attention and MLP, each with its norms and its residual sum."""
    around = residual_part(arch, on)
    mlp = (
        mlp_part(kind.mlp, arch.hidden, on)
        if isinstance(kind.mlp, Mlp)
        else experts_part(kind.mlp, arch.hidden, on, capacity)
    )
    return around + attention_part(kind.attention, arch.hidden, on, flash), around + mlp


def _layer(part: Part, roofline: Roofline, checkpoint: int, output: int) -> LayerCost:
    forward, core = roofline.forward(part.operators), roofline.forward(part.core)
    return LayerCost(
        forward=forward + core,
        backward=roofline.backward(part.operators + part.core),
        recompute=forward + core,
        recompute_selective=core,
        weight_bytes=Fraction(HALF * part.weights),
        expert_weight_bytes=Fraction(HALF * part.expert_weights),
        activation_bytes=Fraction(part.kept + part.core_kept),
        selective_bytes=Fraction(part.kept),
        checkpoint_bytes=Fraction(checkpoint),
        attention_core_bytes=Fraction(part.core_kept),
        output_bytes=Fraction(output),
        calls=part.calls,
    )


def _layers(
    arch: Architecture, on: Shard, model: ConfigModel, roofline: Roofline
) -> tuple[LayerCost, ...]:
    """Costs in execution order; equal blocks share their objects."""
    # What crosses from layer to layer: s*b*h, each device its share with sequence parallelism.
    stream = HALF * on.residual_tokens * arch.hidden
    capacity = exact(model.capacity_factor)

    def block(kind: Block) -> tuple[LayerCost, ...]:
        first, second = _halves(arch, kind, on, model.flash_attention, capacity)
        if model.granularity == "half":
            return tuple(_layer(part, roofline, stream, stream) for part in (first, second))
        whole = first + second
        if arch.parallel:  # both norms keep the same input
            whole = replace(whole, kept=whole.kept - stream)
        return (_layer(whole, roofline, stream, stream),)

    blocks = {kind: block(kind) for kind in dict.fromkeys(arch.blocks)}
    return (
        _layer(embedding_part(arch, on), roofline, inputs_kept(arch, on), stream),
        *(cost for kind in arch.blocks for cost in blocks[kind]),
        _layer(head_part(arch, on), roofline, stream, 0),
    )


def _names(arch: Architecture, halves: bool) -> tuple[str, ...]:
    parts = (".attention", ".mlp") if halves else ("",)
    blocks = (f"block.{i}{part}" for i in range(len(arch.blocks)) for part in parts)
    return ("embedding", *blocks, "head")


def _consumers(arch: Architecture, layers: int, halves: bool) -> tuple[int, ...]:
    """Each layer feeds the next one; a block's input also its MLP half, if that stands in parallel.

    What halves in parallel hand on is their own output added to what they got, so the MLP half
    needs both the block's input and the stream that the attention half has added to.
    """
    last = layers - 1
    skips = halves and arch.parallel
    return tuple(
        min(i + (2 if skips and i % 2 == 0 and i + 2 < last else 1), last) for i in range(layers)
    )


def notes_of_config(model: ConfigModel) -> tuple[str, ...]:
    """What a user should know of how the config was read; empty if there is nothing, or no model.

    >>> config = {"model_type": "gemma3", "text_config": {
    ...     "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}}
    >>> notes_of_config(ConfigModel(kind="config", name="m", sequence_length=64, config=config))
    ('only the language model of gemma3 is read, from text_config',)
    """
    arch, complaints = read_config(model)
    return () if arch is None or complaints else arch.notes


def table_of_config(
    model: ConfigModel,
    device: Device,
    templates: tuple[Template, ...],
    microbatches: tuple[int, ...],
) -> LayerTable:
    """The layer table of a Transformer given by its Hugging Face ``config.json``.

    Supports the values of ``model_type`` in :data:`nest_opt.estimate.config.FAMILIES`. Bytes and
    seconds are per device, for one microbatch of ``model.sequence_length`` tokens per sequence;
    weights at 2 bytes. A template that does not divide what it shards is skipped with the reason.
    Tied word matrices count in both ends' weights and are given in ``tied_bytes``.

    Raises :class:`nest_opt.errors.InputError`, listing every complaint, for a config that is
    incomplete, contradictory or not of these families, and for a device without a peak rate or
    memory bandwidth. Takes O(templates * (microbatches * kinds of block + blocks)) time.

    >>> device = Device(name="d", memory_bytes=1, peak_flops_per_second=1e12,
    ...                 memory_bytes_per_second=1e11)
    >>> config = {"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4,
    ...           "n_positions": 64, "vocab_size": 256}
    >>> model = ConfigModel(kind="config", name="tiny", sequence_length=64, config=config)
    >>> table = table_of_config(model, device, (Template(), Template(tensor=3)), (1,))
    >>> table.names
    ('embedding', 'block.0', 'block.1', 'head')
    >>> [(template.label, reason) for template, reason in table.skipped]
    [('t3', 'tensor degree 3 does not divide the 4 attention heads')]
    """
    arch, complaints = read_config(model)
    owner = "cluster.device" if model.device is None else "model.device"
    roofline = roofline_of(device, owner, complaints)
    if complaints or arch is None or roofline is None:
        raise InputError(model.name, complaints)

    sequence = model.sequence_length
    costs: dict[tuple[Template, int], tuple[LayerCost, ...]] = {}
    tied: dict[Template, Fraction] = {}
    skipped: list[tuple[Template, str]] = []
    for template in templates:
        reason = _why_not(arch, sequence, template)
        if reason:
            skipped.append((template, reason))
            continue
        word = HALF * word_matrix(arch, shard_of(sequence, template, 1))
        tied[template] = Fraction(word if arch.tied else 0)
        for microbatch in microbatches:
            on = shard_of(sequence, template, microbatch)
            costs[template, microbatch] = _layers(arch, on, model, roofline)
    halves = model.granularity == "half"
    names = _names(arch, halves)
    return LayerTable(
        names=names,
        consumers=_consumers(arch, len(names), halves),
        costs=costs,
        tied_bytes=tied,
        skipped=tuple(skipped),
    )
