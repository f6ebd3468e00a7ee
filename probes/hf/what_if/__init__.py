"""What-if experiments: a loaded transformers model computes differently for a while.

The probe asks whether a changed computation agrees with the other engine. Nothing here depends on a
model family: attention is changed where every family calls it, positions in the buffers of inverse
frequencies, and other settings as attributes of modules.

An edit is a pair of a name and a value. `catalogue.what_ifs` lists the edits that a model allows,
`altered.altered` applies some of them until its block ends.
"""
