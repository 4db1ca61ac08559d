"""Data sets for detection: data.yaml, labels and pictures, read and checked.

Used by the launcher before anything is paid for, and by the trainer. Standard library, PyYAML and Pillow; no torch.
"""

from remote.dataset.archive import extract, find_root, list_archive
from remote.dataset.datafile import data_file_text
from remote.dataset.elsewhere import Elsewhere, Traffic, evenly, open_packed
from remote.dataset.importing import Imported, import_dataset
from remote.dataset.listing import label_path
from remote.dataset.members import Member
from remote.dataset.pictures import PictureError, load_image, picture_size
from remote.dataset.reading import open_dataset
from remote.dataset.sampling import Sampled, SplitSample, check_sample
from remote.dataset.summary import SplitSummary, Summary, brief, summary
from remote.dataset.values import Dataset, DatasetError, Note, NoteKind, Object, PictureCheck, Sample, Split

__all__ = [
    "Dataset",
    "DatasetError",
    "Elsewhere",
    "Imported",
    "Member",
    "Note",
    "NoteKind",
    "Object",
    "PictureCheck",
    "PictureError",
    "Sample",
    "Sampled",
    "Split",
    "SplitSample",
    "SplitSummary",
    "Summary",
    "Traffic",
    "brief",
    "check_sample",
    "data_file_text",
    "evenly",
    "extract",
    "find_root",
    "import_dataset",
    "label_path",
    "list_archive",
    "load_image",
    "open_dataset",
    "open_packed",
    "picture_size",
    "summary",
]
