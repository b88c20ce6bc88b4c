"""Cases of the generated corpus that are known to be answered badly, and why."""

from __future__ import annotations

from typing import Final

_LOSS = "the loss that is typed beside it is blamed, without the reason why there are no targets"
_VIEWS = "what does not fit any more is blamed: the order of the steps, or the loss"
_UNREAD = "a key is blamed that nothing reads any more, since its transform was replaced"
_NAMES = "the targets are blamed that are made of so many names"
_WIDTH = "the loss is blamed; the hint names the outputs that the model should have"
OF_CHECK: Final[dict[str, str]] = {
    "augment/cutmix data.spec.input_shape=[1,8]": "cutmix takes no such input, and only cutmix is named",
    "data/arrays ~data.source.targets": _LOSS,
    "data/arrays data.source.targets=null": _LOSS,
    "data/image_folder data.source.classes=false": _LOSS,
    "data/transform/crop_flip data.transform.train.0=null": _UNREAD,
    "data/transform/crop_flip data.transform.train.0=abc": _UNREAD,
    "data/transform/crop_flip data.transform.train.0=3": _UNREAD,
    "data/transform/imagenet data.transform.eval.0=null": _UNREAD,
    "data/transform/imagenet data.transform.eval.0=abc": _UNREAD,
    "data/transform/imagenet data.transform.eval.0=3": _UNREAD,
    f"data/image_folder data.source.root='{'x' * 300}'": "the system's words for a name that is too long",
    "data/arrays model._args_.1.out_features=0": _WIDTH,
    "data/custom data.source.dataset.num_classes=1000000000000": "its targets are blamed, not what drew them",
    "task/segmentation data.spec.class_names=['background','0','1']": _NAMES,
    "task/segmentation data.spec.class_names=['background','0','1','4','4','4']": _NAMES,
    "data/arrays model._args_.1.out_features=1000000000000": _WIDTH,
    "augment/two_views ~data.task": _VIEWS,
    "augment/two_views data.task=null": _VIEWS,
}
"""By the case's name: a raw exception, or a key that is not the one at fault."""

_COUNTS = "check takes data.spec at its word; the run compares it with the data before it trains"
_PATH = "the logger refuses what is no path when it is made, before the first step"
IN_TRAINING: Final[dict[str, str]] = {
    " data.spec.class_counts.all=[50,50]": _COUNTS,
    " data.spec.class_counts.all=[50,50,50,50,50]": _COUNTS,
    "logger/tensorboard +logger.tensorboard.sub_dir=[1,2]": _PATH,
    "logger/tensorboard logger.tensorboard.save_dir=0": _PATH,
    "logger/tensorboard logger.tensorboard.save_dir=-1": _PATH,
    "logger/mlflow ~logger.mlflow.tracking_uri": "MLflow refuses its own default when the logger is made",
}
"""By the case's name: accepted, and then it cannot be trained."""
