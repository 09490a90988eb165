/* log.c - what the library says: errors, and the log of NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE (rccl
 * src/debug.cc). Its text tells which network carries the data, so lines about that are worded as the library's are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rccl.h"

static pthread_mutex_t error_mu = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512];

enum { LEVEL_NONE, LEVEL_VERSION, LEVEL_WARN, LEVEL_INFO };

static struct {
	int level;
	unsigned subsystems;
	FILE *file;
	char host[80];
} logging;
static pthread_once_t logging_once = PTHREAD_ONCE_INIT;

static int level_of(const char *v)
{
	if (v == NULL)
		return LEVEL_NONE;
	if (strcasecmp(v, "VERSION") == 0)
		return LEVEL_VERSION;
	if (strcasecmp(v, "WARN") == 0)
		return LEVEL_WARN;
	return strcasecmp(v, "INFO") == 0 || strcasecmp(v, "ABORT") == 0 || strcasecmp(v, "TRACE") == 0 ? LEVEL_INFO : LEVEL_NONE;
}

static unsigned subsystems_of(const char *list)
{
	static const struct {
		const char *name;
		unsigned mask;
	} known[] = {{"INIT", LOG_INIT}, {"P2P", LOG_P2P}, {"SHM", LOG_SHM}, {"NET", LOG_NET}, {"ENV", LOG_ENV},
		{"BOOTSTRAP", LOG_BOOTSTRAP}, {"ALL", ~0u}};
	if (list == NULL)
		return LOG_INIT | LOG_BOOTSTRAP | LOG_ENV;
	bool all_but = list[0] == '^';
	unsigned mask = all_but ? ~0u : 0;
	char copy[256], *rest = copy, *one;
	snprintf(copy, sizeof copy, "%s", list + all_but);
	while ((one = strsep(&rest, ",")) != NULL)
		for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
			if (strcasecmp(one, known[i].name) == 0)
				mask = all_but ? mask & ~known[i].mask : mask | known[i].mask;
	return mask;
}

/* open_file opens NCCL_DEBUG_FILE with %h and %p replaced; a file that cannot be opened leaves the log on stdout. */
static FILE *open_file(const char *pattern, const char *host)
{
	char path[PATH_MAX] = "";
	size_t at = 0;
	for (const char *p = pattern; *p != 0 && at + 1 < sizeof path; p++) {
		int wrote = 0;
		if (*p != '%' || p[1] == 0) {
			path[at++] = *p;
			continue;
		}
		switch (*++p) {
		case '%': wrote = snprintf(path + at, sizeof path - at, "%%"); break;
		case 'h': wrote = snprintf(path + at, sizeof path - at, "%s", host); break;
		case 'p': wrote = snprintf(path + at, sizeof path - at, "%d", getpid()); break;
		default: wrote = snprintf(path + at, sizeof path - at, "%%%c", *p);
		}
		at += (size_t)wrote;
	}
	FILE *f = at > 0 && at < sizeof path ? fopen(path, "we") : NULL;
	return f != NULL ? f : stdout;
}

static void start_logging(void)
{
	const char *file = getenv("NCCL_DEBUG_FILE");
	gethostname(logging.host, sizeof logging.host - 1);
	logging.host[strcspn(logging.host, ".")] = 0;
	logging.subsystems = subsystems_of(getenv("NCCL_DEBUG_SUBSYS"));
	logging.level = level_of(getenv("NCCL_DEBUG"));
	logging.file = logging.level > LEVEL_VERSION && file != NULL ? open_file(file, logging.host) : stdout;
	if (logging.level >= LEVEL_INFO) { /* once a process, whatever the subsystems: this log is of no real network */
		fprintf(logging.file, "%s:%d:%d [0] NCCL INFO SIMULATED library (hack/simrocm): no GPU and no network is used\n", logging.host,
			getpid(), gettid());
		fflush(logging.file);
	}
}

static void print(int level, const char *kind, const char *text)
{
	pthread_once(&logging_once, start_logging);
	if (logging.level < level)
		return;
	fprintf(logging.file, "%s:%d:%d [%d] NCCL %s %s\n", logging.host, getpid(), gettid(), simrocm_current_device(), kind, text);
	fflush(logging.file);
}

#define FORMAT_TEXT                                                                                                    \
	char text[2048];                                                                                                   \
	va_list args;                                                                                                      \
	va_start(args, format);                                                                                            \
	vsnprintf(text, sizeof text, format, args);                                                                        \
	va_end(args);

void warn(const char *format, ...)
{
	FORMAT_TEXT
	print(LEVEL_WARN, "WARN", text);
}

void info(unsigned subsystems, const char *format, ...)
{
	pthread_once(&logging_once, start_logging);
	if ((logging.subsystems & subsystems) == 0)
		return;
	FORMAT_TEXT
	print(LEVEL_INFO, "INFO", text);
}

bool logs_info(void)
{
	pthread_once(&logging_once, start_logging);
	return logging.level >= LEVEL_INFO;
}

int fail(int result, const char *format, ...)
{
	FORMAT_TEXT
	pthread_mutex_lock(&error_mu);
	snprintf(last_error, sizeof last_error, "%.511s", text);
	pthread_mutex_unlock(&error_mu);
	print(LEVEL_WARN, "WARN", text);
	return result;
}

const char *last_error_text(void) { return last_error; }

void fatal(const char *format, ...)
{
	FORMAT_TEXT
	fprintf(stderr, "FATAL simulated RCCL: %s\n", text);
	fflush(stderr);
	abort();
}

void banner(void)
{
	static _Atomic int done;
	if (level_of(getenv("NCCL_DEBUG")) < LEVEL_VERSION || atomic_exchange(&done, 1) != 0)
		return;
	const struct sim_config *c = simrocm_config();
	char host[80] = "";
	Dl_info where = {0};
	gethostname(host, sizeof host - 1);
	dladdr((const void *)last_error, &where);
	int v = version_code(), hip = c->hip_runtime_version;
	printf("RCCL version : %d.%d.%d-SIMULATED:%s (hack/simrocm, no GPU is used)\nHIP version  : %d.%d.%d-SIMULATED\n"
		"ROCm version : %s-SIMULATED\nHostname     : %s\nLibrccl path : %s\n",
		v / 10000, v / 100 % 100, v % 100, simrocm_flavor_name(c->flavor), hip / 10000000, hip / 100000 % 100,
		hip % 100000, c->rocm_version, host, where.dli_fname != NULL ? where.dli_fname : "unknown");
	fflush(stdout);
}
