#include "config.h"

#include <sys/types.h>
#include <sys/resource.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "names.h"
#include "settings.h"

/*
 * How much of the machine commands may use up (librechat-code(1)). An option
 * wins over its variable; a blank variable counts as not set.
 */
#define V                 "LIBRECHAT_CODE_"

#define TMP_DEFAULT_MAX   (4ULL << 30)
#define TMP_DEFAULT_MIN   (64ULL << 20)
#define MEMORY_MIN        (16ULL << 20)
#define PROCESSES_DEFAULT 4096U
#define PROCESSES_MIN     16U
#define PROCESSES_MAX     (1U << 22) /* PID_MAX_LIMIT of Linux */

int
parse_size(const char *text, uint64_t *out)
{
	unsigned long long v;
	char *t = trimmed(text), *end;
	unsigned int shift = 0;
	int ok;

	v = strtoull(t, &end, 10);
	ok = *t >= '0' && *t <= '9' && strlen(t) < 18;
	switch (*end) {
	case 'K':
	case 'k':
		shift = 10;
		end++;
		break;
	case 'M':
	case 'm':
		shift = 20;
		end++;
		break;
	case 'G':
	case 'g':
		shift = 30;
		end++;
		break;
	default:
		break;
	}
	ok = ok && *end == '\0' && v <= (1ULL << 40) >> shift &&
	    (v << shift) >= 1ULL << 20;
	free(t);
	if (!ok)
		return -1;
	*out = v << shift;
	return 0;
}

/* The value of an option or variable, trimmed; NULL if there is none. */
static char *
value_of(const char *option, const char *name)
{
	const char *v = option != NULL ? option : getenv(name);
	char *t;

	if (v == NULL)
		return NULL;
	t = trimmed(v);
	if (*t == '\0') {
		free(t);
		return NULL;
	}
	return t;
}

static int
is_none(const char *v)
{
	return strcmp(v, "none") == 0 || strcmp(v, "0") == 0;
}

/* Of the machine, in bytes; 0 if the system does not say. */
static uint64_t
machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	if (pages <= 0 || size <= 0)
		return 0;
	return (uint64_t)pages * (uint64_t)size;
}

static int
set_memory(struct settings *s, const struct options *o, char **error)
{
	char *v = value_of(o->memory_limit, V "MEMORY_LIMIT");
	int r = 0;

	s->memory_bytes = machine_memory() / 4 * 3;
	if (v == NULL)
		return 0;
	if (is_none(v))
		s->memory_bytes = 0;
	else if (parse_size(v, &s->memory_bytes) == -1 ||
	    s->memory_bytes < MEMORY_MIN)
		r = errorf(error,
		    "--memory-limit must be a number from 16M to 1024G, or "
		    "none, not \"%s\"",
		    v);
	free(v);
	return r;
}

/*
 * A third of the memory limit, which is a quarter of the machine's memory
 * unless somebody chose another one, within bounds.
 */
static int
set_tmp(struct settings *s, const struct options *o, char **error)
{
	char *v = value_of(o->tmp_size, V "TMP_SIZE");
	int r = 0;

	s->tmp_bytes = machine_memory() / 4;
	if (s->memory_bytes != 0 && s->tmp_bytes > s->memory_bytes / 3)
		s->tmp_bytes = s->memory_bytes / 3;
	if (s->tmp_bytes > TMP_DEFAULT_MAX)
		s->tmp_bytes = TMP_DEFAULT_MAX;
	if (s->tmp_bytes < TMP_DEFAULT_MIN)
		s->tmp_bytes = TMP_DEFAULT_MIN;
	if (v != NULL && parse_size(v, &s->tmp_bytes) == -1)
		r = errorf(error,
		    "--tmp-size must be a number from 1M to 1024G, not \"%s\"",
		    v);
	free(v);
	return r;
}

/*
 * What commands start counts for their account too, so one workspace gets at
 * most half of what the account may have.
 */
static void
respect_account(struct settings *s)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NPROC, &rl) == -1 || rl.rlim_cur == RLIM_INFINITY)
		return;
	if (s->processes > rl.rlim_cur / 2 && rl.rlim_cur / 2 >= PROCESSES_MIN)
		s->processes = (uint32_t)(rl.rlim_cur / 2);
}

static int
set_processes(struct settings *s, const struct options *o, char **error)
{
	char *v = value_of(o->process_limit, V "PROCESS_LIMIT"), *end;
	unsigned long n;
	int r = 0;

	s->processes = PROCESSES_DEFAULT;
	if (v != NULL && is_none(v)) {
		s->processes = 0;
		free(v);
		return 0;
	}
	if (v != NULL) {
		n = strtoul(v, &end, 10);
		if (*v < '0' || *v > '9' || strlen(v) > 9 || *end != '\0' ||
		    n < PROCESSES_MIN || n > PROCESSES_MAX)
			r = errorf(error,
			    "--process-limit must be a number from %u to %u, "
			    "or none, not \"%s\"",
			    PROCESSES_MIN, PROCESSES_MAX, v);
		s->processes = (uint32_t)n;
	}
	free(v);
	if (r == 0)
		respect_account(s);
	return r;
}

int
settings_limits(struct settings *s, const struct options *o, char **error)
{
	if (set_memory(s, o, error) == -1 || set_tmp(s, o, error) == -1)
		return -1;
	return set_processes(s, o, error);
}
