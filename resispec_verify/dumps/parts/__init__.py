"""Many files, or many chunks, as one dump, and drafts with a part of the vocabulary.

`shard_files`: which files; `shards`: parts by position; `vocabulary`: parts of the vocabulary; `reduced`: the
draft of a reduced vocabulary at its places in the target's.
"""
