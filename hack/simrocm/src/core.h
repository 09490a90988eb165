/* core.h - what libamdhip64.so offers to librccl.so.1 beyond the HIP ABI: the simulated node, device memory with write
 * generations, and streams whose time is modelled. Names begin with simrocm_ so that nothing real can clash. */
#ifndef SIMROCM_CORE_H
#define SIMROCM_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))
#define SIM_MAX_GPUS 64
#define SIM_VERSION 1

/* hipError_t values that the library returns (hip_runtime_api.h). */
enum {
	hipSuccess = 0,
	hipErrorInvalidValue = 1,
	hipErrorOutOfMemory = 2,
	hipErrorNoDevice = 100,
	hipErrorInvalidDevice = 101,
	hipErrorInvalidContext = 201,
	hipErrorInvalidHandle = 400,
	hipErrorNotFound = 500,
	hipErrorNotReady = 600,
	hipErrorPeerAccessAlreadyEnabled = 704,
};

/* Link types of hipExtGetLinkTypeAndHopCount (hsa_ext_amd.h); 0 is ours for "no path but host memory". */
enum { SIM_LINK_NONE = 0, SIM_LINK_PCIE = 2, SIM_LINK_XGMI = 4 };

enum sim_flavor { FLAVOR_RCCL, FLAVOR_RCCL_DDA, FLAVOR_RCCLX_DEV, FLAVOR_RCCLX_STABLE };

enum sim_fault {
	FAULT_NONE, FAULT_SLOW_LINK, FAULT_HANG, FAULT_WRONG_DATA, FAULT_INIT_ABORT, FAULT_MISSING_SYMBOL, FAULT_LOW_MEMORY,
	FAULT_GARBAGE_VERSION, FAULT_LATE, FAULT_INIT_HANG, FAULT_DESTROY_HANG, FAULT_SEGFAULT,
	/* Only in communicators over several nodes. */
	FAULT_SLOW_NIC, FAULT_SLOW_NODE_NET, FAULT_SLOW_PAIR, FAULT_HANG_PAIR, FAULT_HANG_ACROSS, FAULT_DIE_ACROSS,
	FAULT_WRONG_ACROSS, FAULT_NO_RDMA,
	FAULT_COUNT,
};

/* sim_node_pair is what is wrong between a node and one other. */
#define SIM_MAX_NODE_PAIRS 4
struct sim_node_pair {
	char other[64]; /* the other node's name */
	int percent;    /* share of the bandwidth that is left */
	bool hangs;
};

/* sim_interface is a network interface of the simulated node that is up. */
#define SIM_MAX_INTERFACES 16
struct sim_interface {
	char name[16], address[64];
};

/* sim_model is one GPU product. The bandwidths are the busbw of large collectives; model.h says where they come from. */
struct sim_model {
	const char *name;       /* as simrocm.conf spells it */
	const char *hip_name;   /* as hipDeviceGetName says */
	const char *gfx;
	int gpus;               /* in the default node */
	int64_t memory_bytes;   /* per GPU */
	int hive_size;          /* GPUs in one full mesh; 0: not a mesh, use ring_mbps for whatever is joined */
	int64_t link_mbps;      /* usable, one direction, one pair of GPUs (all of its links) */
	int efficiency_permille;/* of (n-1) pairs that a mesh reaches */
	int64_t ring_mbps;      /* busbw where the GPUs are no calibrated mesh */
	int64_t cross_mbps;     /* busbw across hives or over PCIe */
	bool fp8_ocp;           /* E4M3 as OCP (gfx950), else FNUZ (gfx942) */
	bool fp8;               /* has FP8 conversion instructions */
};

/* sim_config is the simulated node, from $SIMROCM_ROOT/simrocm.conf. Read once a process. */
struct sim_config {
	char node[128];
	char boot_id[64];
	const struct sim_model *model;
	enum sim_flavor flavor;
	int gpus;
	int partitions;            /* devices a GPU: 1 in SPX, 8 in CPX */
	char pci[SIM_MAX_GPUS][20];
	int visible[SIM_MAX_GPUS]; /* physical ordinal of each HIP ordinal */
	int visible_count;
	bool masked;               /* an environment variable hides devices */
	int64_t pair_mbps[SIM_MAX_GPUS][SIM_MAX_GPUS];
	uint8_t pair_kind[SIM_MAX_GPUS][SIM_MAX_GPUS];
	int64_t nominal_pair_mbps;
	int64_t nic_mbps[SIM_MAX_GPUS]; /* of each device's NIC, one direction */
	struct sim_interface interfaces[SIM_MAX_INTERFACES];
	int interface_count;
	uint64_t faulty[FAULT_COUNT]; /* devices that have the fault, a bit each; all where it is the node's */
	struct sim_node_pair node_pairs[SIM_MAX_NODE_PAIRS];
	int node_pair_count;
	int64_t fault_late_ms;     /* late */
	int fault_version;         /* garbage-version */
	int64_t fault_memory_mib;  /* low-memory */
	char fault_symbol[64];     /* missing-symbol */
	int hip_runtime_version;
	char rocm_version[32];
	char problem[160];         /* why the configuration cannot be used; empty when fine */
};

SIM_API const struct sim_config *simrocm_config(void);
SIM_API const char *simrocm_flavor_name(enum sim_flavor f);
/* simrocm_hide_symbol makes dlsym(library of address, name) fail: the missing-symbol fault. */
SIM_API void simrocm_hide_symbol(const void *address, const char *name);

/* Device of the calling thread, as a HIP ordinal. */
SIM_API int simrocm_current_device(void);

/* Memory. A generation changes with every write that the library makes; 0 means that writes cannot be seen (host memory). */
SIM_API uint64_t simrocm_generation(const void *ptr);
SIM_API void simrocm_written(const void *ptr);
/* simrocm_reserve takes bytes of a device's memory that nobody reads or writes (the library's own pools). */
SIM_API int simrocm_reserve(int device, int64_t bytes);
SIM_API void simrocm_unreserve(int device, int64_t bytes);

/* Streams. A task runs on the stream's own thread, in order, and advances clock_ns by what it would have taken. */
struct sim_stream;
typedef void (*sim_task_fn)(struct sim_stream *stream, void *arg);
/* simrocm_stream gives the stream of a handle; NULL is the null stream of the thread's device. */
SIM_API struct sim_stream *simrocm_stream(void *handle);
SIM_API void simrocm_enqueue(struct sim_stream *stream, sim_task_fn fn, void *arg);
SIM_API int64_t simrocm_clock_ns(const struct sim_stream *stream);
SIM_API void simrocm_set_clock_ns(struct sim_stream *stream, int64_t ns);
SIM_API void simrocm_stream_wait(struct sim_stream *stream);
/* simrocm_thread starts a detached thread that takes no signals (a Go program must not get them on a foreign thread). */
SIM_API int simrocm_thread(void *(*fn)(void *), void *arg);

#endif
