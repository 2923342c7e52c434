"""Which of lc0's networks can be represented here: the numbers of NetworkFormat, and the refusals by name.

A convolutional tower, with squeeze-excitation or without, takes either policy head that lc0 has for it.
Numbers and meaning: net.proto (LeelaChessZero/lczero-common), lc0 src/neural/loader.cc.
"""

from __future__ import annotations

from google.protobuf.message import Message

from alphazero.errors import WeightsError

# The newest net.proto this reader was written for; lc0 refuses files that ask for a newer lc0 than itself.
NEWEST_VERSION = (0, 33, 0)
ANY_VERSION = (97, 98, 99)  # a mark that lc0's loader accepts whatever its own version is

LINEAR16 = 1  # Format.Encoding
INPUT_CLASSICAL_112, OUTPUT_WDL, VALUE_WDL, MOVES_LEFT_V1 = 1, 2, 2, 1
TOWER_WITHOUT_SE, TOWER_WITH_SE = 3, 4  # NETWORK_CLASSICAL_WITH_HEADFORMAT, NETWORK_SE_WITH_HEADFORMAT
# PolicyFormat of our heads, and back.
POLICY_NUMBERS = {"convolution": 2, "attention": 3}
POLICY_HEADS = {number: head for head, number in POLICY_NUMBERS.items()}

INPUT_NAMES = {
    0: "unknown input",
    2: "input with castling planes (INPUT_112_WITH_CASTLING_PLANE)",
    3: "canonical input (INPUT_112_WITH_CANONICALIZATION)",
    4: "hectoplies input (INPUT_112_WITH_CANONICALIZATION_HECTOPLIES)",
    5: "canonical input V2 (INPUT_112_WITH_CANONICALIZATION_V2)",
    132: "armageddon input (INPUT_112_WITH_CANONICALIZATION_HECTOPLIES_ARMAGEDDON)",
    133: "armageddon input (INPUT_112_WITH_CANONICALIZATION_V2_ARMAGEDDON)",
}
NETWORK_NAMES = {
    0: "unknown structure",
    1: "classical policy head (fully connected)",
    2: "classical policy head (fully connected)",
    5: "ONNX network",
    6: "attention body",
    7: "attention body with several heads",
    134: "attention body with several heads",
}
POLICY_NAMES = {
    0: "unknown policy head",
    1: "classical policy head (fully connected)",
}
VALUE_NAMES = {
    0: "unknown value head",
    1: "classical value head (one number, no WDL)",
    3: "parametric value head",
}
# Fields of Weights that no network of ours has, whatever NetworkFormat says, and what has them.
FOREIGN_FIELDS = {
    "encoder": "attention body",
    "ip_emb_w": "attention body",
    "pol_encoder": "encoders in the attention policy head",
}


def check_format(net: Message) -> None:
    """Refuse, by name of what it is, what our network cannot represent."""
    version = net.min_version
    needed = (version.major, version.minor, version.patch)
    if needed > NEWEST_VERSION and needed != ANY_VERSION:
        raise WeightsError(
            f"wants lc0 {'.'.join(map(str, needed))}: this reader knows {'.'.join(map(str, NEWEST_VERSION))}"
        )
    if net.HasField("onnx_model"):
        raise WeightsError("ONNX network: only lc0's own weights can be read")
    if net.format.weights_encoding != LINEAR16:
        raise WeightsError(f"weights encoding {net.format.weights_encoding}: expected 1 (LINEAR16)")
    what = foreign_part(net)
    if what is not None:
        raise WeightsError(
            f"{what}: expected a convolutional tower with ReLU, the classical 112 input planes, a policy "
            "head of convolution or of attention without encoders, and a WDL value head"
        )


def foreign_part(net: Message) -> str | None:
    """The first part of a network that ours cannot have, by its name."""
    layout = net.format.network_format
    # A file without the format message is the oldest kind (lc0 loader.cc FixOlderWeightsFile).
    structure = layout.network if layout.HasField("network") else 1
    if structure not in (TOWER_WITHOUT_SE, TOWER_WITH_SE):
        return NETWORK_NAMES.get(structure, f"structure {structure}")
    present = {field.name for field, _ in net.weights.ListFields()}
    for field, what in FOREIGN_FIELDS.items():
        if field in present:
            return what
    input_format = layout.input if layout.HasField("input") else INPUT_CLASSICAL_112
    if input_format != INPUT_CLASSICAL_112:
        return INPUT_NAMES.get(input_format, f"input of kind {input_format}")
    if layout.policy not in POLICY_HEADS:
        return POLICY_NAMES.get(layout.policy, f"policy head of kind {layout.policy}")
    has_attention = POLICY_HEADS[layout.policy] == "attention"
    if "ip2_pol_w" in present and not has_attention:
        return "attention policy head in a file whose format says convolution"
    if "policy_heads" in present and has_attention:  # lc0 would take layers from there
        return "several policy heads"
    if layout.value != VALUE_WDL:
        return VALUE_NAMES.get(layout.value, f"value head of kind {layout.value}")
    faults = {
        f"output format {layout.output}": layout.output != OUTPUT_WDL,
        f"moves-left head of kind {layout.moves_left}": layout.moves_left > MOVES_LEFT_V1,
        "Mish activations": layout.default_activation != 0,
    }
    return next((what for what, found in faults.items() if found), None)
