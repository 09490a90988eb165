/* shm.c - the shared segment of a communicator: a file in $SIMROCM_SHM_DIR (else /dev/shm) named by the unique id, which
 * every rank maps. Its name goes as soon as all ranks have attached, so nothing stays behind when they are killed.
 * Ranks that die before that leave a file without a lock; the next ncclGetUniqueId removes such files. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rccl.h"

#define PREFIX "simrocm-"
/* A container's /dev/shm is 64 MiB by default; two communicators have to fit. */
#define STAGES_BYTES ((size_t)16 << 20)
#define CHANNELS_BYTES ((size_t)8 << 20)

/* Files that still have a name, to remove if the process ends before all ranks are there. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static char unlinked_later[16][PATH_MAX];

static const char *directory(void)
{
	const char *d = getenv("SIMROCM_SHM_DIR");
	return d != NULL && d[0] != 0 ? d : "/dev/shm";
}

static void remember(const char *path, bool add)
{
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < sizeof unlinked_later / sizeof unlinked_later[0]; i++) {
		if (add && unlinked_later[i][0] == 0) {
			snprintf(unlinked_later[i], sizeof unlinked_later[i], "%s", path);
			break;
		}
		if (!add && strcmp(unlinked_later[i], path) == 0)
			unlinked_later[i][0] = 0;
	}
	pthread_mutex_unlock(&mu);
}

__attribute__((destructor)) static void unlink_remembered(void)
{
	for (size_t i = 0; i < sizeof unlinked_later / sizeof unlinked_later[0]; i++)
		if (unlinked_later[i][0] != 0)
			unlink(unlinked_later[i]);
}

/* new_name makes a segment's name, from a text that all ranks share (NCCL_COMM_ID) or at random. */
void new_name(char *name, size_t size, const char *derive_from)
{
	uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
	if (derive_from != NULL) {
		for (const char *p = derive_from; *p != 0; p++) {
			a = (a ^ (uint8_t)*p) * 0x100000001b3u;
			b = (b ^ a) * 0x100000001b3u;
		}
	} else if (getrandom(&a, sizeof a, 0) != sizeof a || getrandom(&b, sizeof b, 0) != sizeof b) {
		a ^= (uint64_t)getpid();
		b ^= (uint64_t)time(NULL);
	}
	snprintf(name, size, PREFIX "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

/* sweep_segments removes files whose ranks are all gone: their locks went with them. */
void sweep_segments(void)
{
	DIR *dir = opendir(directory());
	if (dir == NULL)
		return;
	const struct dirent *e;
	while ((e = readdir(dir)) != NULL) {
		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		int fd = openat(dirfd(dir), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(dirfd(dir), e->d_name, 0);
		close(fd);
	}
	closedir(dir);
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t layout(struct comm *c)
{
	size_t n = (size_t)c->ranks;
	size_t stage = STAGES_BYTES / (n + 1) / 8192 * 8192;
	c->stage_bytes = stage > 16384 ? stage : 16384;
	size_t buffer = CHANNELS_BYTES / (n * n) / 4096 * 4096;
	c->channel_buffer_bytes = buffer > 262144 ? 262144 : buffer > 4096 ? buffer : 4096;

	size_t infos = round_up(sizeof(struct segment), 4096);
	size_t channels = round_up(infos + n * sizeof(struct rank_info), 4096);
	size_t stages = round_up(channels + n * n * sizeof(struct channel), 4096);
	size_t buffers = stages + (n + 1) * c->stage_bytes;
	char *base = (char *)c->segment;
	if (base != NULL) {
		c->infos = (struct rank_info *)(base + infos);
		c->channels = (struct channel *)(base + channels);
		c->stages = base + stages;
		c->channel_buffers = base + buffers;
	}
	return buffers + n * n * c->channel_buffer_bytes;
}

static void path_of(const char *name, char *path, size_t size) { snprintf(path, size, "%s/%s", directory(), name); }

/* open_locked opens the file under a shared lock that tells sweep_segments that somebody is here. */
static int open_locked(const char *path)
{
	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return -1;
		struct stat st;
		if (flock(fd, LOCK_SH) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
			return fd; /* stays open: the lock lives as long as the process */
		close(fd);
	}
}

/* segment_root makes the file of a new unique id. This process is its root from now on, as the thread that listens behind
 * a real id: once it is gone, nobody can join any more. */
int segment_root(const char *name)
{
	char path[PATH_MAX];
	path_of(name, path, sizeof path);
	if (open_locked(path) < 0)
		return fail(ncclSystemError, "cannot make the shared segment %s: %s", path, strerror(errno));
	remember(path, true);
	return ncclSuccess;
}

/* root_is_there: somebody holds the file of a unique id; what nobody holds is removed. */
static bool root_is_there(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	bool alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
	if (alone)
		unlink(path);
	close(fd);
	return !alone;
}

/* await_root tries as often as the library connects to the root (src/misc/socket.cc socketConnectCheck): 34 times, 100 ms
 * longer apart each time, a minute in all. */
static int await_root(const struct comm *c, const char *path)
{
	int64_t retries = param("NCCL_SOCKET_RETRY_CNT", 34), sleep_ms = param("NCCL_SOCKET_RETRY_SLEEP_MSEC", 100);
	for (int64_t attempt = 1; !root_is_there(path); attempt++) {
		if (attempt > retries)
			return fail(ncclRemoteError, "socketStartConnect: connect to the root of %s returned Connection refused, exceeded error "
				"retry count after %lld attempts", c->name, (long long)attempt);
		for (int64_t slept = 0; slept < attempt * sleep_ms; slept += 50) {
			if (atomic_load(&c->aborted) != 0)
				return ncclInternalError;
			usleep(50000);
		}
	}
	return ncclSuccess;
}

int segment_attach(struct comm *c)
{
	char path[PATH_MAX];
	path_of(c->name, path, sizeof path);
	size_t bytes = layout(c);
	int rooted = c->rooted ? await_root(c, path) : ncclSuccess;
	if (rooted != ncclSuccess)
		return rooted;
	int fd = open_locked(path);
	if (fd < 0)
		return fail(ncclSystemError, "cannot open the shared segment %s: %s", path, strerror(errno));
	remember(path, true);
	/* The stages are written by all ranks: take their memory now, where a full file system is an error and not a SIGBUS. */
	int rc = posix_fallocate(fd, 0, (off_t)(bytes - (size_t)c->ranks * (size_t)c->ranks * c->channel_buffer_bytes));
	struct stat st;
	if (rc != 0 || fstat(fd, &st) != 0 || ((size_t)st.st_size < bytes && ftruncate(fd, (off_t)bytes) != 0)) {
		close(fd);
		return fail(ncclSystemError, "cannot reserve %zu bytes in %s: %s", bytes, directory(), strerror(rc != 0 ? rc : errno));
	}
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return fail(ncclSystemError, "cannot map %s: %s", path, strerror(errno));
	}
	c->segment = p;
	c->segment_bytes = bytes;
	c->segment_fd = fd;
	layout(c);
	return ncclSuccess;
}

void segment_unlink(struct comm *c)
{
	char path[PATH_MAX];
	path_of(c->name, path, sizeof path);
	unlink(path);
}

/* segment_attached forgets a name that the last rank to attach has removed. */
void segment_attached(struct comm *c)
{
	char path[PATH_MAX];
	path_of(c->name, path, sizeof path);
	remember(path, false);
}

void segment_detach(struct comm *c)
{
	if (c->segment == NULL)
		return;
	munmap(c->segment, c->segment_bytes);
	close(c->segment_fd);
	c->segment = NULL;
	c->infos = NULL;
}

/* futex_wait sleeps while the word has the value, for at most 50 ms so that callers can look at their abort flags. */
void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	const struct timespec limit = {0, 50 * 1000 * 1000};
	syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

/* barrier_wait gives false when the communicator was aborted meanwhile; it cannot be used any more then. */
bool barrier_wait(struct comm *c)
{
	struct barrier *b = &c->segment->barrier;
	uint32_t generation = atomic_load(&b->generation);
	if (atomic_fetch_add(&b->arrived, 1) + 1 == (uint32_t)c->ranks) {
		atomic_store(&b->arrived, 0);
		atomic_fetch_add(&b->generation, 1);
		futex_wake(&b->generation);
		return true;
	}
	while (atomic_load(&b->generation) == generation) {
		if (atomic_load(&c->aborted) != 0 && atomic_load(&c->unabortable) == 0)
			return false;
		futex_wait(&b->generation, generation);
	}
	return true;
}
