"""The family as tables: which layers a variant has, where each reads from, and with which numbers.

Owns layer indices, which are part of the checkpoint format. Knows no torch.

A layer's `numbers` are, by kind: conv (out, kernel, stride); aconv and adown (out); elan (out, split, width, depth;
depth 0 is ELAN1); sppelan (out, hidden); cblinear (widths of its parts); cbfuse (picked part of each source but the
last). Sources are layer indices, -1 is the layer before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STRIDES = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of a variant's table."""

    kind: str
    numbers: tuple[int, ...] = ()
    sources: tuple[int, ...] = (-1,)


@dataclass(frozen=True, slots=True)
class Variant:
    """A body of layers, and what the head reads: auxiliary levels (none in a gelan model) and main levels, P3 to P5."""

    name: str
    layers: tuple[Layer, ...]
    auxiliary: tuple[int, ...]
    main: tuple[int, ...]


UPSAMPLE = Layer("upsample")


def _concat(*sources: int) -> Layer:
    return Layer("concat", (), sources)


def _fuse(picks: tuple[int, ...], *sources: int) -> Layer:
    return Layer("cbfuse", picks, sources)


def _small(name: str, k: int) -> Variant:
    """yolov9-t (k = 16) and yolov9-s (k = 32): the same table at two widths."""

    def elan(out: int) -> Layer:
        return Layer("elan", (out * k, out * k, out * k // 2, 3))

    layers = (
        Layer("conv", (k, 3, 2)),
        Layer("conv", (2 * k, 3, 2)),
        Layer("elan", (2 * k, 2 * k, k, 0)),
        Layer("aconv", (4 * k,)),
        elan(4),
        Layer("aconv", (6 * k,)),
        elan(6),
        Layer("aconv", (8 * k,)),
        elan(8),
        Layer("sppelan", (8 * k, 4 * k)),
        UPSAMPLE,
        _concat(-1, 6),
        elan(6),
        UPSAMPLE,
        _concat(-1, 4),
        elan(4),
        Layer("aconv", (3 * k,)),
        _concat(-1, 12),
        elan(6),
        Layer("aconv", (4 * k,)),
        _concat(-1, 9),
        elan(8),
        # The auxiliary neck: top-down only.
        Layer("sppelan", (8 * k, 4 * k), (8,)),
        UPSAMPLE,
        _concat(-1, 6),
        elan(6),
        UPSAMPLE,
        _concat(-1, 4),
        elan(4),
    )
    return Variant(name, layers, auxiliary=(28, 25, 22), main=(15, 18, 21))


@dataclass(frozen=True, slots=True)
class _Widths:
    """What differs between yolov9-m and yolov9-c. Each stage is (out, split, width) of an ELAN block of depth 1."""

    down: str
    stem: int
    stages: tuple[tuple[int, int, int], ...]
    downs: tuple[int, int, int]
    spp: tuple[int, int]
    necks: tuple[tuple[int, int, int], ...]
    neck_downs: tuple[int, int]
    routes: tuple[int, int, int]


_M = _Widths(
    down="aconv",
    stem=32,
    stages=((128, 128, 64), (240, 240, 120), (360, 360, 180), (480, 480, 240)),
    downs=(240, 360, 480),
    spp=(480, 240),
    necks=((360, 360, 180), (240, 240, 120), (360, 360, 180), (480, 480, 240)),
    neck_downs=(180, 240),
    routes=(240, 360, 480),
)
_C = _Widths(
    down="adown",
    stem=64,
    stages=((256, 128, 64), (512, 256, 128), (512, 512, 256), (512, 512, 256)),
    downs=(256, 512, 512),
    spp=(512, 256),
    necks=((512, 512, 256), (256, 256, 128), (512, 512, 256), (512, 512, 256)),
    neck_downs=(256, 512),
    routes=(256, 512, 512),
)


def _medium(name: str, w: _Widths) -> Variant:
    """yolov9-m and yolov9-c: a neck of their own, and a second, auxiliary backbone fed by the first."""

    def elan(numbers: tuple[int, int, int]) -> Layer:
        return Layer("elan", (*numbers, 1))

    def down(out: int) -> Layer:
        return Layer(w.down, (out,))

    layers = (
        Layer("silence"),
        Layer("conv", (w.stem, 3, 2)),
        Layer("conv", (2 * w.stem, 3, 2)),
        elan(w.stages[0]),
        down(w.downs[0]),
        elan(w.stages[1]),
        down(w.downs[1]),
        elan(w.stages[2]),
        down(w.downs[2]),
        elan(w.stages[3]),
        Layer("sppelan", w.spp),
        UPSAMPLE,
        _concat(-1, 7),
        elan(w.necks[0]),
        UPSAMPLE,
        _concat(-1, 5),
        elan(w.necks[1]),
        down(w.neck_downs[0]),
        _concat(-1, 13),
        elan(w.necks[2]),
        down(w.neck_downs[1]),
        _concat(-1, 10),
        elan(w.necks[3]),
        Layer("cblinear", w.routes[:1], (5,)),
        Layer("cblinear", w.routes[:2], (7,)),
        Layer("cblinear", w.routes, (9,)),
        # The auxiliary backbone starts again from the image.
        Layer("conv", (w.stem, 3, 2), (0,)),
        Layer("conv", (2 * w.stem, 3, 2)),
        elan(w.stages[0]),
        down(w.downs[0]),
        _fuse((0, 0, 0), 23, 24, 25, -1),
        elan(w.stages[1]),
        down(w.downs[1]),
        _fuse((1, 1), 24, 25, -1),
        elan(w.stages[2]),
        down(w.downs[2]),
        _fuse((2,), 25, -1),
        elan(w.stages[3]),
    )
    return Variant(name, layers, auxiliary=(31, 34, 37), main=(16, 19, 22))


def _extensive() -> Variant:
    """yolov9-e: the second backbone belongs to the main path, the auxiliary neck reads the first."""

    def elan(out: int, split: int, width: int) -> Layer:
        return Layer("elan", (out, split, width, 2))

    def down(out: int) -> Layer:
        return Layer("adown", (out,))

    routes = (64, 128, 256, 512, 1024)
    layers = (
        Layer("silence"),
        Layer("conv", (64, 3, 2)),
        Layer("conv", (128, 3, 2)),
        elan(256, 128, 64),
        down(256),
        elan(512, 256, 128),
        down(512),
        elan(1024, 512, 256),
        down(1024),
        elan(1024, 512, 256),
        Layer("cblinear", routes[:1], (1,)),
        Layer("cblinear", routes[:2], (3,)),
        Layer("cblinear", routes[:3], (5,)),
        Layer("cblinear", routes[:4], (7,)),
        Layer("cblinear", routes, (9,)),
        Layer("conv", (64, 3, 2), (0,)),
        _fuse((0, 0, 0, 0, 0), 10, 11, 12, 13, 14, -1),
        Layer("conv", (128, 3, 2)),
        _fuse((1, 1, 1, 1), 11, 12, 13, 14, -1),
        elan(256, 128, 64),
        down(256),
        _fuse((2, 2, 2), 12, 13, 14, -1),
        elan(512, 256, 128),
        down(512),
        _fuse((3, 3), 13, 14, -1),
        elan(1024, 512, 256),
        down(1024),
        _fuse((4,), 14, -1),
        elan(1024, 512, 256),
        Layer("sppelan", (512, 256), (9,)),
        UPSAMPLE,
        _concat(-1, 7),
        elan(512, 512, 256),
        UPSAMPLE,
        _concat(-1, 5),
        elan(256, 256, 128),
        Layer("sppelan", (512, 256), (28,)),
        UPSAMPLE,
        _concat(-1, 25),
        elan(512, 512, 256),
        UPSAMPLE,
        _concat(-1, 22),
        elan(256, 256, 128),
        down(256),
        _concat(-1, 39),
        elan(512, 512, 256),
        down(512),
        _concat(-1, 36),
        elan(512, 1024, 512),
    )
    return Variant("yolov9-e", layers, auxiliary=(35, 32, 29), main=(42, 45, 48))


def needed(layers: tuple[Layer, ...], outputs: tuple[int, ...]) -> frozenset[int]:
    """Indices of the layers that `outputs` depend on."""
    found: set[int] = set()
    waiting = list(outputs)
    while waiting:
        index = waiting.pop()
        if index in found:
            continue
        found.add(index)
        waiting.extend(before for before in absolute(layers[index], index) if before >= 0)
    return frozenset(found)


def absolute(layer: Layer, index: int) -> tuple[int, ...]:
    """Sources as layer indices; -1 is left for the image, which only layer 0 reads."""
    return tuple(index - 1 if source == -1 else source for source in layer.sources)


def main_layers(variant: Variant) -> tuple[int, ...]:
    """Indices of the layers of the gelan form: what the main levels need, but no Silence that one layer alone reads."""
    kept = sorted(needed(variant.layers, variant.main))
    readers = [i for i in kept if i and 0 in absolute(variant.layers[i], i)]
    if variant.layers[0].kind == "silence" and readers == [1]:
        kept.remove(0)
    return tuple(kept)


def without_auxiliary(variant: Variant) -> Variant:
    """The gelan form: the main layers alone, renumbered."""
    kept = main_layers(variant)
    position = {old: new for new, old in enumerate(kept)}
    layers = tuple(
        replace(variant.layers[i], sources=tuple(position.get(s, -1) for s in absolute(variant.layers[i], i)))
        for i in kept
    )
    name = variant.name.replace("yolov9", "gelan")
    return Variant(name, layers, (), tuple(position[i] for i in variant.main))


_DUAL = (_small("yolov9-t", 16), _small("yolov9-s", 32), _medium("yolov9-m", _M), _medium("yolov9-c", _C), _extensive())

VARIANTS = {variant.name: variant for variant in (*_DUAL, *map(without_auxiliary, _DUAL))}
"""By name: yolov9-t, s, m, c, e in training form and gelan-t, s, m, c, e without the auxiliary branch."""
