"""The trainable detectors as numbers: parameters, arithmetic and memory traffic of one training step.

Owns the table `MODELS`. Counted on the training form (auxiliary branch included, 80 classes) at 640 px; everything but
the parameters grows with the area of the picture. Knows nothing of GPUs.

Source: counted with forward hooks on the public YOLOv9 architectures, 2026-11-30; `gib_per_image` and `fixed_gib` are a
regression of the peak allocated memory over 2 to 5 batch sizes each, measured on one H200 under fp16 autocast with the
reference training code and up to 40 boxes a picture. The project's own trainer has not been measured on a GPU yet.
"""

from __future__ import annotations

from dataclasses import dataclass

REFERENCE_IMAGE_SIZE = 640


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One detector in its training form, per picture of 640 x 640."""

    name: str
    parameters: int
    forward_gflop: float
    train_gflop: float
    """Forward and backward together."""
    written_melem: float
    """Million elements written by convolutions, normalisations and activations in the forward pass."""
    layers: int
    """Convolutions, normalisations and activations: kernels of one forward pass, nearly."""
    gib_per_image: float
    fixed_gib: float
    """Weights, gradients, optimiser and EMA."""

    def area_scale(self, image_size: int) -> float:
        """Factor on the per-picture figures at another image size."""
        return (image_size / REFERENCE_IMAGE_SIZE) ** 2


MODELS: dict[str, ModelFacts] = {
    facts.name: facts
    for facts in (
        ModelFacts("yolov9-t", 3_717_680, 16.274, 49.766, 91.661, 831, 0.2370, 0.113),
        ModelFacts("yolov9-s", 9_804_512, 39.499, 119.351, 161.549, 831, 0.3799, 0.179),
        ModelFacts("yolov9-m", 32_878_432, 132.081, 396.922, 348.132, 681, 0.7555, 0.595),
        ModelFacts("yolov9-c", 51_182_080, 238.653, 717.727, 453.236, 705, 1.0115, 0.600),
        ModelFacts("yolov9-e", 69_529_664, 243.961, 732.208, 580.749, 1029, 1.2469, 0.683),
    )
}
