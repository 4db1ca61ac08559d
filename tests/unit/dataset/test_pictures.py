"""Every kind of picture comes out as upright 8-bit RGB, and what is none is refused in words."""

import io
import os
import struct
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from remote.dataset import PictureError, load_image, picture_size
from remote.dataset.pictures import TURNS

WIDTH, HEIGHT = 48, 32


def scene() -> Image.Image:
    """Gray that rises from left to right, with a red upper left corner."""
    image = Image.linear_gradient("L").rotate(90).resize((WIDTH, HEIGHT)).convert("RGB")
    image.paste((220, 20, 20), (0, 0, 12, 8))
    return image


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of two pictures, of 255."""
    assert one.size == other.size
    return sum(ImageStat.Stat(ImageChops.difference(one.convert("RGB"), other.convert("RGB"))).mean) / 3


def jpeg(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92, **options)
    return out.getvalue()


@pytest.mark.parametrize("check", [load_image, picture_size])
@pytest.mark.parametrize("name", ["plain.jpg", "plain.png", "plain.webp", "plain.bmp", "plain.tif"])
def test_the_usual_kinds_load(tmp_path: Path, name: str, check):
    scene().save(tmp_path / name)
    found = check(tmp_path / name)
    if check is picture_size:
        assert found == (WIDTH, HEIGHT)
    else:
        assert (found.mode, found.size) == ("RGB", (WIDTH, HEIGHT))
        assert difference(found, scene()) < 8


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "PA", "CMYK", "1", "I;16", "I", "F"])
def test_every_mode_becomes_rgb_and_keeps_its_picture(tmp_path: Path, mode: str):
    path = tmp_path / ("picture.tif" if mode in ("CMYK", "F", "I") else "picture.png")
    if mode == "PA":
        scene().quantize(32).save(path, transparency=bytes([0, 120] * 16))
    elif mode == "I;16":
        raw = b"".join(struct.pack("<H", value * 257) for value in scene().convert("L").tobytes())
        Image.frombytes("I;16", (WIDTH, HEIGHT), raw).save(path)
    else:
        scene().convert(mode).save(path)
    found = load_image(path)
    assert found.mode == "RGB"
    colour = mode in ("RGBA", "P", "PA", "CMYK")
    expected = scene() if colour else scene().convert("L")
    assert mode == "1" or difference(found, expected) < 20  # black and white dots differ from gray everywhere
    assert found.getpixel((WIDTH - 1, HEIGHT - 1)) > found.getpixel((WIDTH // 3, HEIGHT - 1))


def test_sixteen_bits_are_scaled_and_not_clipped_to_white(tmp_path: Path):
    path = tmp_path / "deep.png"
    Image.frombytes("I;16", (16, 8), struct.pack("<128H", *range(0, 128 * 500, 500))).save(path)
    low, high = load_image(path).getextrema()[0]
    assert low == 0
    assert high == pytest.approx(127 * 500 / 257, abs=1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png", "webp"])
def test_a_picture_that_was_stored_turned_comes_out_upright(tmp_path: Path, orientation: int, kind: str):
    undo = {6: 8, 8: 6}.get(orientation, orientation)
    stored = scene() if orientation == 1 else scene().transpose(TURNS[undo])
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"turned.{kind}"
    stored.save(path, exif=exif)
    assert picture_size(path) == (WIDTH, HEIGHT)
    assert difference(load_image(path), scene()) < 8


def test_the_content_decides_and_not_the_name(tmp_path: Path):
    scene().save(tmp_path / "really.png")
    path = (tmp_path / "really.png").rename(tmp_path / "claims.jpg")
    assert picture_size(path) == load_image(path).size == (WIDTH, HEIGHT)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_without_its_end_marker_loads(tmp_path: Path, progressive: bool):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(scene(), progressive=progressive)[:-2])
    assert picture_size(path) == (WIDTH, HEIGHT)
    assert difference(load_image(path), scene()) < 8


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9, 0.97])
def test_a_jpeg_that_was_cut_off_is_refused_by_both_checks(tmp_path: Path, share: float, progressive: bool):
    path = tmp_path / "a.jpg"
    noisy = Image.effect_noise((160, 120), 90)
    data = jpeg(noisy, progressive=progressive)
    path.write_bytes(data[: int(len(data) * share)])
    for check in (picture_size, load_image):
        with pytest.raises(PictureError, match=r"a\.jpg: is damaged or cut off"):
            check(path)


def test_a_png_that_was_cut_off_is_refused(tmp_path: Path):
    path = tmp_path / "a.png"
    Image.effect_noise((64, 64), 90).save(path)
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(PictureError, match="cut off"):
        picture_size(path)


def test_a_jpeg_with_something_behind_its_end_loads(tmp_path: Path):
    path = tmp_path / "phone.jpg"
    path.write_bytes(jpeg(scene()) + b"a film that the phone put there" * 20)
    assert picture_size(path) == load_image(path).size == (WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "is a web page"),
        (b"../pictures/image-006.jpeg", "symbolic link"),
        (b"\x89PNG\r\n\x1a\n", "not a picture of a known kind"),
        (b"\xff\xd8\xff\xe0 and then nothing", "not a picture of a known kind"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not a picture of a known kind"),
    ],
)
def test_what_is_no_picture_is_refused_with_what_it_is(tmp_path: Path, data: bytes, reason: str):
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    for check in (picture_size, load_image):
        with pytest.raises(PictureError, match=reason) as caught:
            check(path)
        assert str(caught.value).startswith(str(path))
        assert caught.value.hint


def test_a_picture_of_a_few_pixels_is_refused(tmp_path: Path):
    path = tmp_path / "a.png"
    Image.new("RGB", (1, 1)).save(path)
    with pytest.raises(PictureError, match="too small: 1x1"):
        picture_size(path)


def test_a_missing_picture_is_refused(tmp_path: Path):
    with pytest.raises(PictureError, match="No such file"):
        load_image(tmp_path / "none.jpg")


@pytest.mark.parametrize("check", [load_image, picture_size])
def test_a_pipe_is_not_waited_for_but_refused(tmp_path: Path, check):
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(PictureError, match="is a pipe, socket or device"):
        check(tmp_path / "a.jpg")
