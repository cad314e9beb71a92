"""What the processor is: its maker and its instruction set extensions, as Linux names them.

Read once, from one file; empty where it cannot be read. Neighbours: `targets/cpu/record.py` finds the vector width and
the library for matrix products by it; compiled code is filed under `identity()`.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Final, NamedTuple


class Processor(NamedTuple):
    """`maker` is "GenuineIntel", "AuthenticAMD", …"""

    maker: str
    flags: frozenset[str]


@cache
def processor() -> Processor:
    """This machine's."""
    maker, flags = "", frozenset[str]()
    for line in _description():
        name, _, value = line.partition(":")
        match name.strip():
            case "vendor_id":
                maker = value.strip()
            case "flags" | "Features":
                return Processor(maker, frozenset(value.split()))
    return Processor(maker, flags)


@cache
def identity() -> str:
    """Architecture, maker and instruction set extensions: what decides which machine code runs, and which is chosen.

    Machines of another model that have the same extensions run each other's code. A word that Linux may add and this
    file does not know counts as an extension, so a difference costs a compilation and never an illegal instruction.
    """
    found = processor()
    return f"{platform.machine()} {found.maker} {' '.join(sorted(found.flags - _OF_THE_SYSTEM))}"


# What the list of flags says besides: clocks, power, virtualization, protection and what the kernel makes of them. No
# compiler emits anything for these, and they differ between kernels and hosts of one processor.
_OF_THE_SYSTEM: Final = frozenset(
    """
    acpi amd_lbr_v2 aperfmperf apic arat arch_capabilities arch_lbr arch_perfmon art avic bts cat_l2 cat_l3 cdp_l2
    cdp_l3 cmp_legacy constant_tsc cpb cppc cpuid cpuid_fault cqm cqm_llc cqm_mbm_local cqm_mbm_total cqm_occup_llc
    cr8_legacy dca debug_swap decodeassists ds_cpl dtes64 dtherm dts epb ept ept_ad est extapic extd_apicid
    flexpriority flush_l1d flushbyasid hfi ht hw_pstate hwp hwp_act_window hwp_epp hwp_notify hwp_pkg_req hypervisor
    ibpb ibrs ibrs_enhanced ibs ida intel_ppin intel_pt invpcid invpcid_single irperf lbrv mba mca mce md_clear monitor
    mtrr mwaitx nodeid_msr nonstop_tsc nopl npt nrip_save nx ospke osvw pat pausefilter pbe pcid pconfig pdcm pdpe1gb
    pebs perfctr_core perfctr_llc perfctr_nb perfmon_v2 pfthreshold pge pku pln pse pse36 pti pts rdt_a rep_good
    retpoline sdbg sev sev_es sev_snp skinit smap smca smep smx ss ssbd stibp succor svm svm_lock syscall tm tm2 tme
    topoext tpr_shadow tsc tsc_adjust tsc_deadline_timer tsc_known_freq tsc_scale umip v_spec_ctrl v_vmsave_vmload vgif
    vmcb_clean vme vmmcall vmx vnmi vpid wdt x2apic x2avic xtopology xtpr
    """.split()
)


@cache
def _description() -> tuple[str, ...]:
    """The lines of the system's description of its processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return tuple(lines)
    except OSError:
        return ()
