"""Costs read from HLO text, compared with sums by hand."""

import pytest

from dclm_jax.planning.hlo import Chunks, Program, size_of

# Two loops: one of four trips, whose bound is a constant, and one whose bound is an argument. A
# fusion reads one row of a [4, 8] array and writes one row of another in place.
TEXT = """\
HloModule step, is_scheduled=true

%fused (p0: f32[4,8], p1: f32[4,8], p2: s32[]) -> f32[4,8] {
  %p0 = f32[4,8]{1,0} parameter(0)
  %p1 = f32[4,8]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  %row = f32[1,8]{1,0} dynamic-slice(%p0, %p2, %zero), dynamic_slice_sizes={1,8}
  %squared = f32[1,8]{1,0} multiply(%row, %row)
  ROOT %written = f32[4,8]{1,0} dynamic-update-slice(%p1, %squared, %p2, %zero)
}

%tokens (state: (s32[], f32[4,8], f32[4,8])) -> (s32[], f32[4,8], f32[4,8]) {
  %state = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
  %count = s32[] get-tuple-element(%state), index=0
  %in = f32[4,8]{1,0} get-tuple-element(%state), index=1
  %out = f32[4,8]{1,0} get-tuple-element(%state), index=2
  %next = f32[4,8]{1,0} fusion(%in, %out, %count), kind=kLoop, calls=%fused, \
backend_config={"window_config":{"estimated_cycles":"100"}}
  %more = s32[] add(%count, %count)
  ROOT %result = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%more, %in, %next)
}

%is_token (state.1: (s32[], f32[4,8], f32[4,8])) -> pred[] {
  %state.1 = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
  %count.1 = s32[] get-tuple-element(%state.1), index=0
  %bound = s32[] constant(4)
  ROOT %less = pred[] compare(%count.1, %bound), direction=LT
}

%chunks (state.2: (s32[], s32[], f32[16])) -> (s32[], s32[], f32[16]) {
  %state.2 = (s32[], s32[], f32[16]{0}) parameter(0)
  %array = f32[16]{0} get-tuple-element(%state.2), index=2
  %twice = f32[16]{0} add(%array, %array), backend_config={"estimated_cycles":"7"}
  ROOT %result.2 = (s32[], s32[], f32[16]{0}) tuple(%state.2, %state.2, %twice)
}

%is_chunk (state.3: (s32[], s32[], f32[16])) -> pred[] {
  %state.3 = (s32[], s32[], f32[16]{0}) parameter(0)
  %count.3 = s32[] get-tuple-element(%state.3), index=0
  %last = s32[] get-tuple-element(%state.3), index=1
  ROOT %less.3 = pred[] compare(%count.3, %last), direction=LT
}

%small (p: f32[16]) -> f32[16] {
  %p = f32[16]{0} parameter(0)
  ROOT %once = f32[16]{0} copy(%p), backend_config={"estimated_cycles":"10"}
}

%large (q: f32[16]) -> f32[16] {
  %q = f32[16]{0} parameter(0)
  %first = f32[16]{0} copy(%q), backend_config={"estimated_cycles":"20"}
  ROOT %second = f32[16]{0} copy(%first), backend_config={"estimated_cycles":"30"}
}

ENTRY %main (a: f32[4,8], b: f32[4,8], n: s32[], c: f32[16]) -> f32[16] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[4,8]{1,0} parameter(1)
  %n = s32[] parameter(2)
  %c = f32[16]{0} parameter(3)
  %start = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%n, %a, %b)
  %over_tokens = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) while(%start), condition=%is_token, \
body=%tokens
  %begin = f32[16]{0} conditional(%n, %c, %c), branch_computations={%small, %large}
  %start.2 = (s32[], s32[], f32[16]{0}) tuple(%n, %n, %begin)
  %over_chunks = (s32[], s32[], f32[16]{0}) while(%start.2), condition=%is_chunk, body=%chunks
  ROOT %sum = f32[16]{0} get-tuple-element(%over_chunks), index=2
}
"""


@pytest.mark.parametrize(
    ("text", "size"),
    [("f32[4,8]{1,0}", 128), ("(bf16[3], pred[2,2], s32[])", 6 + 4 + 4), ("f8e4m3fn[4]", 4)],
)
def test_sizes(text, size):
    assert size_of(text) == size


def test_loops_count_their_trips():
    outside, tokens, chunks = Program(TEXT, Chunks(trips=3, size=1, num_sizes=2)).loops()
    # The large branch runs, two copies; then four trips of one fusion, three of one addition.
    assert (outside.trips, outside.kernels, outside.cycles) == (1, 2, 20 + 30)
    assert outside.num_bytes == 2 * (2 * 64)
    assert (tokens.trips, tokens.kernels, tokens.cycles) == (4, 1, 100)
    # A row is read, a row is written, and the row's number is read.
    assert tokens.num_bytes == 32 + 32 + 4
    assert not tokens.is_over_chunks
    assert (chunks.trips, chunks.kernels, chunks.cycles) == (3, 1, 7)
    assert chunks.is_over_chunks
    assert chunks.num_bytes == 3 * 64
    # Only the branch copies, an array of 16 numbers; the fusion of the tokens computes.
    assert [loop.largest_copy for loop in (outside, tokens, chunks)] == [64, 0, 0]


COPIES = """
%transposed (p: f32[4,8]) -> f32[8,4] {
  %p = f32[4,8]{1,0} parameter(0)
  ROOT %t = f32[8,4]{1,0} transpose(%p), dimensions={1,0}
}

ENTRY %main (a: f32[4,8], b: f32[16]) -> f32[8,4] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[16]{0} parameter(1)
  %copied = f32[16]{0} copy(%b)
  ROOT %r = f32[8,4]{1,0} fusion(%a), kind=kLoop, calls=%transposed
}
"""


def test_a_fusion_that_only_transposes_is_a_copy():
    (outside,) = Program(COPIES, Chunks()).loops()
    assert outside.largest_copy == 4 * 8 * 4


CALL = """
ENTRY %main (c: f32[8]) -> f32[8] {
  %c = f32[8]{0} parameter(0)
  ROOT %a = f32[8]{0} custom-call(%c), custom_call_target="tpu_custom_call", \
backend_config={"custom_call_config":{"cost_estimate":{"flops":"9","bytes_accessed":"200"}}}
}
"""


def test_a_kernel_without_an_estimate_takes_as_long_as_its_memory_traffic():
    (outside,) = Program(CALL, Chunks(), cycles_per_byte=1.5).loops()
    assert outside.cycles == 300


def test_the_size_of_the_first_chunk_selects_the_branch():
    outside = Program(TEXT, Chunks(trips=0, size=0, num_sizes=2)).loops()[0]
    assert outside.cycles == 10
    # Of any other conditional, the branch with the most bytes runs.
    outside = Program(TEXT, Chunks(trips=0, size=0, num_sizes=3)).loops()[0]
    assert outside.cycles == 50
