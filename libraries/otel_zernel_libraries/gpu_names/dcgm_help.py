"""The HELP texts of dcgm-exporter: those of its default-counters.csv. Some alerts and tools show them."""

from collections.abc import Mapping

from otel_zernel_libraries.gpu_names.dcgm import NVLINKS

HELP: Mapping[str, str] = {
    "DCGM_FI_DEV_SM_CLOCK": "SM clock frequency (in MHz).",
    "DCGM_FI_DEV_MEM_CLOCK": "Memory clock frequency (in MHz).",
    "DCGM_FI_DEV_MEMORY_TEMP": "Memory temperature (in C).",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C).",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W).",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "Total energy consumption since boot (in mJ).",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "Total number of PCIe retries.",
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "Memory utilization (in %).",
    "DCGM_FI_DEV_ENC_UTIL": "Encoder utilization (in %).",
    "DCGM_FI_DEV_DEC_UTIL": "Decoder utilization (in %).",
    "DCGM_FI_DEV_XID_ERRORS": "Value of the last XID error encountered.",
    "DCGM_FI_DEV_POWER_VIOLATION": "Throttling duration due to power constraints (in ns).",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "Throttling duration due to thermal constraints (in ns).",
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": "Throttling duration due to sync-boost constraints (in ns).",
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": "Throttling duration due to board limit constraints (in ns).",
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION": "Throttling duration due to low utilization (in ns).",
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": "Throttling duration due to reliability constraints (in ns).",
    "DCGM_FI_DEV_FB_FREE": "Framebuffer memory free (in MiB).",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_FB_RESERVED": "Framebuffer memory reserved (in MiB).",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "Total number of single-bit volatile ECC errors.",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "Total number of double-bit volatile ECC errors.",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": "Total number of single-bit persistent ECC errors.",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "Total number of double-bit persistent ECC errors.",
    "DCGM_FI_DEV_RETIRED_SBE": "Total number of retired pages due to single-bit errors.",
    "DCGM_FI_DEV_RETIRED_DBE": "Total number of retired pages due to double-bit errors.",
    "DCGM_FI_DEV_RETIRED_PENDING": "Total number of pages pending retirement.",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "Total number of NVLink flow-control CRC errors.",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "Total number of NVLink data CRC errors.",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "Total number of NVLink retries.",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "Total number of NVLink recovery errors.",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "Total number of NVLink bandwidth counters for all lanes.",
    **{
        f"DCGM_FI_DEV_NVLINK_BANDWIDTH_L{link}": (
            "The number of bytes of active NVLink rx or tx data including both header and payload."
        )
        for link in range(NVLINKS)
    },
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "Current clock event reasons (bitmask of DCGM_CLOCKS_EVENT_REASON_*).",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "vGPU License status",
    "DCGM_EXP_CLOCK_EVENTS_COUNT": "reported clock events",
    "DCGM_EXP_XID_ERRORS_COUNT": "reported XIDs during last window",
    "DCGM_EXP_GPU_HEALTH_STATUS": "DCGM reported health status",
    "DCGM_EXP_P2P_STATUS": "P2P NvLink status",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "Number of remapped rows for uncorrectable errors",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "Number of remapped rows for correctable errors",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "Whether remapping of rows has failed",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "Ratio of time the graphics engine is active.",
    "DCGM_FI_PROF_SM_ACTIVE": "The ratio of cycles an SM has at least 1 warp assigned.",
    "DCGM_FI_PROF_SM_OCCUPANCY": "The ratio of number of warps resident on an SM.",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "Ratio of cycles the tensor (HMMA) pipe is active.",
    "DCGM_FI_PROF_DRAM_ACTIVE": "Ratio of cycles the device memory interface is active sending or receiving data.",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "Ratio of cycles the fp64 pipes are active.",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "Ratio of cycles the fp32 pipes are active.",
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": "Ratio of cycles the fp16 pipes are active.",
    **{
        f"DCGM_FI_PROF_PCIE_{name}_BYTES": (
            f"The rate of data {verb} over the PCIe bus - including both protocol headers and data payloads - "
            "in bytes per second."
        )
        for name, verb in (("TX", "transmitted"), ("RX", "received"))
    },
}
"""By field. All other fields have the description of their metric."""
