/* rccl.h - shared between the files of librccl.so.1. Values of enums as in nccl.h. */
#ifndef SIMROCM_RCCL_H
#define SIMROCM_RCCL_H

#include <string.h>
#include <stdatomic.h>

#include "core.h"

enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
};
enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps };
enum {
	ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64,
	ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes,
};

struct unique_id {
	char internal[128];
};

enum coll { COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCESCATTER, COLL_ALLGATHER, COLL_BROADCAST, COLL_ALLTOALL };
enum path { PATH_STANDARD, PATH_P2P_ALLGATHER, PATH_DDA_FLAT, PATH_DDA_TREE, PATH_LOW_PRECISION };

#define MAX_RANKS 1024

/* What a rank says when it arrives at a collective. Two of them, because a fast rank may be at the next one already. */
struct slot {
	int64_t clock_ns;
	uint64_t signature;
	uint32_t may_skip;
};

/* RAS counts only the collectives that have a number below NCCL_NUM_FUNCTIONS (rccl src/include/nccl_common.h). */
#define RAS_COLLECTIVES 5
enum { RAS_FINALIZE = 1, RAS_DESTROY = 2, RAS_ABORT = 4, RAS_GONE = 8 };

/* A rank's part of the shared segment. */
struct rank_info {
	char host[160];        /* identity of the node: NCCL_HOSTID, or host name and boot id */
	char pci[20];
	uint64_t process;      /* random, one a process */
	int32_t ordinal;       /* physical, on the node */
	int32_t partitions;
	int32_t hive_size, efficiency_permille;
	int64_t ring_mbps, cross_mbps, nominal_pair_mbps, nic_mbps;
	char node[64];         /* of simrocm.conf; faults between nodes go by it or by NCCL_HOSTID */
	int32_t sockets;       /* reaches other nodes over TCP */
	int32_t node_pair_count;
	struct sim_node_pair node_pairs[SIM_MAX_NODE_PAIRS];
	int64_t pair_mbps[SIM_MAX_GPUS];
	uint8_t pair_kind[SIM_MAX_GPUS];
	/* What RAS tells. */
	int32_t pid, device;
	_Atomic int32_t init_state;
	_Atomic uint32_t flags;
	_Atomic uint64_t launched[RAS_COLLECTIVES];
	_Atomic uint32_t present;
	_Atomic uint32_t doorbell; /* rung by peers in send and receive */
	struct slot slot[2];
};

struct barrier {
	_Atomic uint32_t arrived, generation;
};

/* One direction of a pair of ranks. The fields of a message stand twice, by the parity of its number. */
struct channel {
	_Atomic uint32_t sender_number, receiver_number;
	struct {
		int64_t clock_ns;
		uint64_t bytes;
		uint32_t may_skip;
	} sender[2], receiver[2];
	_Atomic uint32_t full; /* the buffer holds length bytes for the receiver */
	uint32_t length;
};

struct segment {
	_Atomic uint32_t ranks;
	_Atomic uint32_t attached;
	_Atomic uint32_t failed;  /* 1 + rank whose initialisation returned an error */
	struct barrier barrier;
	/* followed by rank_info[n], channel[n*n], stages */
};

/* topology is what the time model needs; every rank computes the same from the shared segment. */
struct topology {
	int ranks, nodes, local_ranks; /* local_ranks: the fewest on one node */
	int64_t bus_mbps;              /* busbw of a large ring or direct collective */
	int64_t pair_mbps;             /* slowest pair within a node */
	int64_t network_mbps;          /* one NIC, several nodes only */
	bool hangs;                    /* by a fault over several nodes this rank never gets out of an operation */
};

struct cached {
	uint64_t signature;
	const void *send;
	void *recv;
	uint64_t send_generation, recv_generation;
};

struct cached_message {
	const void *buffer;
	uint64_t bytes, generation;
};

#define CACHE_ENTRIES 16

struct comm {
	uint64_t magic;
	int rank, ranks, device, ordinal;
	bool blocking;
	_Atomic int result;       /* ncclInProgress until initialised */
	_Atomic int aborted;
	_Atomic int unabortable;  /* inside a DDA kernel, which has no abort flag */
	char name[64];            /* of the segment's file */
	bool rooted;              /* whoever made the unique id has to be there still */

	struct segment *segment;
	size_t segment_bytes;
	int segment_fd;
	struct rank_info *infos;
	struct channel *channels;
	char *channel_buffers;
	size_t channel_buffer_bytes;
	char *stages;             /* one a rank, and one for results */
	size_t stage_bytes;

	struct topology topology;
	bool dda;                 /* comm-level gates of DDA hold */
	int64_t reserved_bytes, pool_elements;
	uint32_t round;

	pthread_mutex_t mu;
	pthread_cond_t changed;
	uint64_t next_ticket, serving; /* operations run in the order of their calls, also across streams */
	int pending;

	struct cached cache[CACHE_ENTRIES];
	int cache_next;
	uint32_t *sent, *received;     /* number of the last message, a peer */
	struct cached_message *sent_last, *received_last;
};

struct op {
	struct comm *comm;
	enum coll coll;
	enum path path;
	const void *send;
	void *recv;
	size_t count;
	int dtype, redop, root;
	struct sim_stream *stream;
	uint64_t ticket;
	int64_t late_ns; /* the late fault: the stream was idle for so long before */
};

struct message {
	struct comm *comm;
	bool send;
	void *buffer;
	uint64_t bytes;
	int peer, dtype;
	struct sim_stream *stream;
	/* progress */
	int state;
	uint64_t moved;
	int64_t end_ns;
	bool skip;
	uint32_t number;
};

struct batch {
	struct comm *comm;
	struct message *messages;
	int count;
	double slowdown; /* of each message, by what goes on beside it */
	int64_t late_ns;
	uint64_t ticket;
};

/* arithmetic.c */
#define BLOCK 1024
size_t dtype_bytes(int dtype);
static inline float bits_float(uint32_t u)
{
	float f;
	memcpy(&f, &u, sizeof f);
	return f;
}
static inline uint32_t float_bits(float f)
{
	uint32_t u;
	memcpy(&u, &f, sizeof u);
	return u;
}
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
void to_float(int dtype, float *dst, const void *src, size_t count);
void from_float(int dtype, void *dst, const float *src, size_t count);
void reduce(int dtype, int redop, void *dst, const void *const *src, int n, size_t count);
void corrupt(int dtype, void *data, size_t count);

/* fp8.c: encode, decode and sum are of E4M3, which is what low precision sends. */
void fp8_encode(int dtype, uint8_t *dst, const void *src, size_t count, bool ocp);
void fp8_decode(int dtype, void *dst, const uint8_t *src, size_t count, bool ocp);
void fp8_sum(float *acc, const uint8_t *const *src, int n, size_t count, bool ocp);
void fp8_encode_float(uint8_t *dst, const float *src, size_t count, bool ocp);
void fp8_reduce(int dtype, int op, void *dst, const void *const *src, int n, size_t count, bool ocp);

/* shm.c */
void new_name(char *name, size_t size, const char *derive_from);
int segment_root(const char *name);
int segment_attach(struct comm *c);
void segment_detach(struct comm *c);
void segment_unlink(struct comm *c);
void segment_attached(struct comm *c);
void sweep_segments(void);
bool barrier_wait(struct comm *c);
void futex_wait(_Atomic uint32_t *word, uint32_t value);
void futex_wake(_Atomic uint32_t *word);

/* gates.c */
void load_configuration_file(void);
int64_t param(const char *name, int64_t otherwise);
int check_preconditions(void);
void comm_gates(struct comm *c);
enum path choose_path(struct comm *c, enum coll coll, const void *send, const void *recv, size_t count, int dtype, int redop);
int64_t low_precision_pool_bytes(int ranks, int64_t elements);
bool low_precision_at_init(void);
bool launches_inside_group(enum path path);

/* model.c, documented in model.h */
void topology_compute(struct comm *c);
int64_t collective_ns(const struct topology *t, enum coll coll, enum path path, size_t count, int dtype);
#define TCP_MBPS 3000 /* of a node: model.h */
int64_t message_ns(const struct comm *c, int from, int to, uint64_t bytes);
double batch_slowdown(const struct batch *b);
int64_t queued_at_nic_ns(const struct batch *b, bool sends);
#define MESSAGE_BASE_NS 12000

/* collective.c */
void collective_task(struct sim_stream *s, void *arg);
void take_turn(struct comm *c, uint64_t ticket);
void end_turn(struct comm *c);
void hang(struct comm *c, enum path path);
bool corrupts(const struct comm *c);

/* ras.c */
void ras_join(struct comm *c);
void ras_leave(struct comm *c);
void ras_launched(const struct op *op);
void ras_flag(struct comm *c, uint32_t flag);

/* p2p.c */
void batch_task(struct sim_stream *s, void *arg);

/* comm.c */
struct comm *checked_comm(void *handle);
int init_rank(void **out, int ranks, const struct unique_id *id, int rank, bool blocking);
int comm_release(struct comm *c, bool wait);
bool has_fault(const struct comm *c, enum sim_fault fault);
bool fault_across(const struct comm *c, enum sim_fault fault);
uint64_t bus_number(const char *pci);

/* group.c */
int group_depth(void);
int submit_op(struct op *op);
int submit_message(struct message *m);
/* init_job runs now, or within a group in a thread that GroupEnd waits for. */
int submit_init(struct comm *c, int (*fn)(struct comm *));

/* net.c */
struct network {
	int result;   /* of choosing: ncclInvalidUsage where the environment leaves nothing to use */
	bool sockets; /* TCP, because there is no RDMA device or the environment says so */
};
const struct network *network_choice(void);
int bootstrap_result(void);
void network_log(const struct comm *c);

/* log.c. Subsystems as in nccl_net.h (ncclDebugLogSubSys). */
enum { LOG_INIT = 0x1, LOG_P2P = 0x4, LOG_SHM = 0x8, LOG_NET = 0x10, LOG_ENV = 0x80, LOG_BOOTSTRAP = 0x1000 };
int fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void info(unsigned subsystems, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
bool logs_info(void);
const char *last_error_text(void);
void banner(void);

/* nccl.c */
int version_code(void);

#endif
