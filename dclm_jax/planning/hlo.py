"""Costs of a compiled program, read from its HLO text with the trip counts of its loops.

XLA's cost analysis counts the body of a loop once. This module counts a kernel as often as it runs.
The text does not give the trips of the loop over chunks of the output layer, nor the size of its
first chunk: both depend on the number of targets, and `Chunks` has them.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)(.*)$")
_ARRAY = re.compile(r"\b(?:(pred)|[bfsuc]+(\d+)\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")
# These instructions name, order or wait for arrays, and launch nothing.
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id "
    "opt-barrier copy-done slice-done async-done all-reduce-done".split()
)
_COPIES = frozenset({"copy", "copy-start", "transpose"})
_SLICES = ("dynamic-slice", "gather", "slice")


class Chunks(NamedTuple):
    """The chunks of the output layer: the trips of the loop over whole chunks, and which of the
    sizes of the first chunk is taken."""

    trips: int = 0
    size: int = 0
    num_sizes: int = 1

    def branch(self, branches: Sequence[Any], weight: Callable[[Any], float]) -> Any:
        """The branch of a conditional that runs: the size of the first chunk, or, of other
        conditionals, the branch with the largest weight."""
        if len(branches) == self.num_sizes:
            return branches[self.size]
        return max(branches, key=weight)


class Instruction(NamedTuple):
    """An instruction: its name, the text of its type, its opcode, the text of its arguments and the
    rest of its line; and whether it is the result of its computation."""

    name: str
    type: str
    opcode: str
    arguments: str
    attributes: str
    is_root: bool

    @property
    def operands(self) -> list[str]:
        """The names of the instructions that it reads."""
        return _NAME.findall(self.arguments)

    def computation(self, key: str) -> str:
        """The computation that an attribute such as `body` names; "" if there is none."""
        match = re.search(rf"\b{key}=%?([\w.\-]+)", self.attributes)
        return match[1] if match else ""

    def number(self, key: str) -> int | None:
        """A number of the backend's configuration, such as `estimated_cycles`."""
        match = re.search(rf'"{key}":(?:\{{"n":)?"?(\d+)', self.attributes)
        return int(match[1]) if match else None


class Kernel(NamedTuple):
    """An instruction that is launched: its number of runs, the loops around it from the outermost
    inwards, the estimated cycles of a run (0 if there is no estimate), and the bytes that a run
    reads and writes."""

    instruction: Instruction
    times: int
    loops: tuple[str, ...]
    cycles: int
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop: its trips, whether it is the loop over chunks of the output layer, its kernels,
    cycles and bytes per trip, and the bytes of the largest array that a kernel only copies. The
    code outside of loops has the name "" and one trip."""

    name: str
    trips: int
    is_over_chunks: bool
    kernels: float
    cycles: float
    num_bytes: float
    largest_copy: int


class Program:
    """A compiled program: the instructions of its computations by name."""

    def __init__(self, text: str, chunks: Chunks, cycles_per_byte: float = 0.0):
        """Parses the text of a compiled program (`Compiled.as_text()`).

        Args:
          cycles_per_byte: cycles per byte of memory traffic. XLA estimates no cycles of kernels
            written with Pallas (nn/fused.py); their bytes count instead.
        """
        self.computations: dict[str, dict[str, Instruction]] = {}
        self._chunks = chunks
        self._cycles_per_byte = cycles_per_byte
        current: dict[str, Instruction] = {}
        for line in text.splitlines():
            if head := _HEAD.match(line):
                current = self.computations[head[2]] = {}
                if head[1]:
                    self._entry = head[2]
            elif match := _INSTRUCTION.match(line):
                root, name, *parts = match.groups()
                current[name] = Instruction(name, *parts, is_root=bool(root))

    def kernels(self) -> list[Kernel]:
        """All kernels. The conditions of loops are part of launching them."""
        return list(self._kernels(self._entry, 1, ()))

    def loops(self) -> list[Loop]:
        """The code outside of loops, and the outermost loops in the order in which they run. Inner
        loops count in a trip of the outermost loop."""
        whiles = {
            instruction.name: instruction
            for computation in self.computations.values()
            for instruction in computation.values()
            if instruction.opcode == "while"
        }
        by_loop: dict[str, list[Kernel]] = {"": []}
        for kernel in self.kernels():
            by_loop.setdefault(kernel.loops[0] if kernel.loops else "", []).append(kernel)
        return [self._loop(whiles.get(name), kernels) for name, kernels in by_loop.items()]

    def _loop(self, loop: Instruction | None, kernels: list[Kernel]) -> Loop:
        trips = self._known_trips(loop) if loop else 1
        count = self._chunks.trips if trips is None else trips

        def per_trip(number: Callable[[Kernel], int]) -> float:
            return sum(kernel.times * number(kernel) for kernel in kernels) / max(1, count)

        return Loop(
            loop.name if loop else "",
            count,
            trips is None,
            per_trip(lambda kernel: 1),
            per_trip(lambda kernel: kernel.cycles),
            per_trip(lambda kernel: kernel.num_bytes),
            max((self._copied_bytes(kernel.instruction) for kernel in kernels), default=0),
        )

    def _copied_bytes(self, instruction: Instruction) -> int:
        """The size of the array if the kernel only copies one, into another layout or not; or 0."""
        opcodes = {instruction.opcode}
        if instruction.opcode == "fusion":
            fused = self.computations[instruction.computation("calls")].values()
            opcodes = {inner.opcode for inner in fused} - {"parameter", "bitcast", "tuple"}
        return size_of(instruction.type) if opcodes and opcodes <= _COPIES else 0

    def _trips(self, loop: Instruction) -> int:
        trips = self._known_trips(loop)
        return self._chunks.trips if trips is None else trips

    def _known_trips(self, loop: Instruction) -> int | None:
        """The trips of a `while`; None if the text does not give them."""
        known = loop.number("known_trip_count")
        if known is not None:
            return known
        # A counter is compared with a constant; a bound that is no constant is an argument.
        condition = self.computations[loop.computation("condition")].values()
        bounds = [
            int(instruction.arguments)
            for instruction in condition
            if instruction.opcode == "constant" and re.fullmatch(r"\d+", instruction.arguments)
        ]
        return bounds[0] if bounds else None

    def _kernels(self, name: str, times: int, loops: tuple[str, ...]) -> Iterator[Kernel]:
        computation = self.computations[name]
        for instruction in computation.values():
            match instruction.opcode:
                case "while":
                    trips, inner = times * self._trips(instruction), (*loops, instruction.name)
                    yield from self._kernels(instruction.computation("body"), trips, inner)
                case "conditional":
                    yield from self._kernels(self._branch(instruction), times, loops)
                case "call" | "async-start":
                    called = instruction.computation("to_apply") or instruction.computation("calls")
                    yield from self._kernels(called, times, loops)
                case opcode if opcode not in _FREE and not _is_counter(instruction):
                    stated = instruction.number("bytes_accessed") or 0
                    cycles = instruction.number("estimated_cycles")
                    if cycles is None:
                        cycles = round(stated * self._cycles_per_byte)
                    num_bytes = self._num_bytes(instruction, computation)
                    yield Kernel(instruction, times, loops, cycles, num_bytes)

    def _branch(self, instruction: Instruction) -> str:
        listed = re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes)
        branches = (
            _NAME.findall(listed[1])
            if listed
            else [instruction.computation(f"{name}_computation") for name in ("true", "false")]
        )

        def num_bytes(branch: str) -> int:
            return sum(kernel.times * kernel.num_bytes for kernel in self._kernels(branch, 1, ()))

        return self._chunks.branch(branches, num_bytes)

    def _num_bytes(self, instruction: Instruction, computation: dict[str, Instruction]) -> int:
        """Bytes that a kernel reads and writes. If it reads or writes only a slice of an array,
        only the slice counts."""
        match instruction.opcode:
            case "fusion":
                return self._fusion_bytes(self.computations[instruction.computation("calls")])
            case "dynamic-update-slice":
                return 2 * size_of(computation[instruction.operands[1]].type)
            case opcode if opcode in _SLICES or opcode.startswith(("copy", "slice")):
                return 2 * size_of(instruction.type)
        operands = [computation[name] for name in instruction.operands if name in computation]
        return size_of(instruction.type) + sum(size_of(operand.type) for operand in operands)

    def _fusion_bytes(self, fused: dict[str, Instruction]) -> int:
        users: dict[str, list[Instruction]] = {name: [] for name in fused}
        for instruction in fused.values():
            for operand in instruction.operands:
                users[operand].append(instruction)
        total = 0
        for parameter in fused.values():
            if parameter.opcode != "parameter":
                continue
            readers = users[parameter.name]
            if readers and all(reader.opcode in _SLICES for reader in readers):
                total += sum(size_of(reader.type) for reader in readers)
            elif not any(_is_updated(parameter, reader) for reader in readers):
                total += size_of(parameter.type)
        (root,) = (instruction for instruction in fused.values() if instruction.is_root)
        results = [fused[name] for name in root.operands] if root.opcode == "tuple" else [root]
        for result in results:
            while result.opcode in ("bitcast", "convert") and result.operands:
                result = fused[result.operands[0]]
            if result.opcode == "dynamic-update-slice":
                result = fused[result.operands[1]]
            total += size_of(result.type)
        return total


def size_of(type_text: str) -> int:
    """The bytes of the arrays of a type such as "(f32[320,128]{1,0}, s32[])"."""
    total = 0
    for is_bool, bits, shape in _ARRAY.findall(type_text):
        item_size = 1 if is_bool else max(1, int(bits) // 8)
        total += item_size * math.prod(map(int, filter(None, shape.split(","))))
    return total


def _is_counter(instruction: Instruction) -> bool:
    """Whether the instruction is scalar arithmetic that needs no kernel."""
    return instruction.opcode not in ("fusion", "custom-call") and size_of(instruction.type) <= 8


def _is_updated(parameter: Instruction, reader: Instruction) -> bool:
    """Whether the reader writes a slice of the parameter in place."""
    return reader.opcode == "dynamic-update-slice" and reader.operands[0] == parameter.name
