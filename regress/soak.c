#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "buf.h"
#include "json.h"
#include "log.h"
#include "matrix.h"
#include "slots.h"
#include "world.h"

/*
 * soak [MINUTES [SLOTS]]: callers keep a worker busy while requests fail at
 * random, the server loses its connections or its clock, and processes are
 * stopped for a while. In the end the directories are compared with what the
 * callers were told: a mutation that was answered with 200 was made exactly
 * once, any other at most once. Memory and descriptors of the daemon's three
 * processes have to stay where they were. Prints one line every 10 seconds.
 * With 2 lease slots or more there are as many roots; without, one root and
 * the serial protocol.
 */
#define CALLERS    6
#define CALLS_MAX  4000000
#define SAMPLE_MS  10000
#define WARM_MS    30000 /* until the first sample that counts */
#define FENCE_MS   8000 /* longer than a command and what may delay it */
#define GROWTH_KIB 8192
#define GROWTH_FDS 6 /* of each root; a command holds some while it runs */

enum kind { APPEND, CREATE, READ };

struct call {
	unsigned char kind;
	short status; /* -1: not made */
};

static struct place place;
#define w (place.w)
static struct call *calls;
static unsigned int ncalls; /* atomic */
static unsigned int answered, refused, cut; /* atomic */
static int stopping; /* atomic */
static int failures; /* atomic */
static int quarantines, lines;

static const char *const helpers[] = { "librechat-code",
	"librechat-code-bridge", "librechat-code-executor" };
struct sample {
	pid_t pid;
	double born;
	long kib, fds; /* of the first sample that counts; 0: none yet */
	long kib_now, fds_now, kib_max, fds_max;
};
static struct sample samples[3];

#define ADD(n) __atomic_add_fetch(&(n), 1, __ATOMIC_SEQ_CST)

/* ---- callers ---- */

static char *
body_of(unsigned int id, enum kind kind)
{
	size_t root = id % place.n;
	char *command, *body;

	switch (kind) {
	case APPEND:
		command = xasprintf("echo %u >>log", id);
		body = place_command(&place, root, command);
		free(command);
		return body;
	case CREATE:
		return xasprintf(
		    "{\"protocolVersion\":1,\"operation\":\"write_file\","
		    "\"workspaceId\":\"%s\",\"path\":\"f%u\","
		    "\"content\":\"x\",\"overwrite\":false}",
		    place.ids[root], id);
	case READ:
	default:
		return place_read(&place, root, "probe");
	}
}

/* How often callers were refused with which status and code. */
static struct refusal {
	char text[64];
	unsigned int n;
} refusals[32];
static pthread_mutex_t refusals_lock = PTHREAD_MUTEX_INITIALIZER;

static void
note_refusal(long status, const char *code)
{
	char text[64];
	size_t i;

	xsnprintf(
	    text, sizeof(text), "%ld %s", status, code == NULL ? "" : code);
	(void)pthread_mutex_lock(&refusals_lock);
	for (i = 0; i < 31 && refusals[i].n > 0; i++)
		if (strcmp(refusals[i].text, text) == 0)
			break;
	memcpy(refusals[i].text, text, sizeof(text));
	refusals[i].n++;
	(void)pthread_mutex_unlock(&refusals_lock);
}

static void
tell_refusals(void)
{
	size_t i;

	for (i = 0; i < 32; i++)
		if (refusals[i].n > 0)
			printf("refused: %u times %s\n", refusals[i].n,
			    refusals[i].text);
}

static void *
caller(void *arg)
{
	struct json *j;
	unsigned int id;
	char *body;
	long status;

	(void)arg;
	while (!__atomic_load_n(&stopping, __ATOMIC_SEQ_CST)) {
		id = ADD(ncalls);
		if (id >= CALLS_MAX)
			break;
		calls[id].kind = (unsigned char)randombytes_uniform(3);
		body = body_of(id, calls[id].kind);
		status = world_call(&w, body, &j);
		free(body);
		if (status == 409 && json_get_str(j, "code") != NULL &&
		    strcmp(json_get_str(j, "code"), "EDIT_CONFLICT") == 0) {
			printf("call %u was made twice\n", id);
			ADD(failures);
		}
		if (status != 200 && status != 0)
			note_refusal(status, json_get_str(j, "code"));
		json_free(j);
		calls[id].status = (short)status;
		if (status == 200)
			ADD(answered);
		else if (status == 0)
			ADD(cut);
		else
			ADD(refused);
		/* Nobody is there: no hot loop over it. */
		if (status != 200)
			usleep(20000);
	}
	return NULL;
}

/* ---- what happens to the daemon ---- */

static void
control(const char *path, char *body)
{
	json_free(world_control(&w, path, body));
	free(body);
}

static void
inject(void)
{
	static const char *const routes[] = { "register", "lease", "ack",
		"cancellation", "settle", "refresh", "any" };
	const char *route = routes[randombytes_uniform(7)];
	const struct fault *f;

	/* Those that do not end the process or quarantine a workspace. */
	do
		f = &faults[randombytes_uniform((uint32_t)nfaults)];
	while (f->shut_out || f->fenced || f->slow ||
	    (f->class == CLASS_DEFINITE && strcmp(route, "settle") == 0) ||
	    (f->class == CLASS_DEFINITE && strcmp(route, "any") == 0));
	control("faults",
	    xasprintf("{\"rules\":[{\"route\":\"%s\",%s,\"count\":%u}]}", route,
		f->rule, 1 + randombytes_uniform(3)));
}

static void
hold(pid_t pid)
{
	if (pid <= 0)
		return;
	(void)kill(pid, SIGSTOP);
	usleep(50000 + randombytes_uniform(950000));
	(void)kill(pid, SIGCONT);
}

static void
disturb(void)
{
	switch (randombytes_uniform(24)) {
	case 0:
		control("restart", xstrdup("{\"memory\":true}"));
		break;
	case 1:
		control("clock",
		    xasprintf("{\"offsetMs\":%d}",
			(int)randombytes_uniform(60000) - 30000));
		break;
	case 2:
		hold(w.server);
		break;
	case 3:
		hold(world_helper(&w, helpers[1]));
		break;
	case 4:
		hold(world_helper(&w, helpers[2]));
		break;
	case 5:
		hold(w.worker);
		break;
	default:
		inject();
		break;
	}
	usleep(500000 + randombytes_uniform(2000000));
}

/* ---- measures ---- */

static long
memory(pid_t pid)
{
	char path[64], text[4096], *p;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if ((fd = open(path, O_RDONLY)) == -1)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	p = strstr(text, "VmRSS:");
	return p == NULL ? 0 : strtol(p + 6, NULL, 10);
}

static long
descriptors(pid_t pid)
{
	char path[64];
	DIR *d;
	long n = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if ((d = opendir(path)) == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void
check_growth(const char *name, const struct sample *s)
{
	if (s->kib == 0)
		return;
	if (s->kib_now > s->kib + GROWTH_KIB ||
	    s->fds_now > s->fds + GROWTH_FDS * (long)place.n) {
		printf("%s grew: %ld to %ld KiB, %ld to %ld descriptors\n",
		    name, s->kib, s->kib_now, s->fds, s->fds_now);
		failures++;
	}
}

static void
measure(double elapsed)
{
	struct sample *s;
	pid_t pid;
	int i;

	printf("%4.0f s: %u calls, %u done, %u refused, %u cut off;", elapsed,
	    ncalls, answered, refused, cut);
	for (i = 0; i < 3; i++) {
		s = &samples[i];
		pid = i == 0 ? w.worker : world_helper(&w, helpers[i]);
		if (pid != s->pid) {
			memset(s, 0, sizeof(*s));
			s->pid = pid;
			s->born = world_now();
		}
		s->kib_now = memory(pid);
		s->fds_now = descriptors(pid);
		if (s->kib == 0 && world_now() - s->born > WARM_MS) {
			s->kib = s->kib_now;
			s->fds = s->fds_now;
		}
		if (s->kib_now > s->kib_max)
			s->kib_max = s->kib_now;
		printf(" %ld KiB %ld fds", s->kib_now, s->fds_now);
		check_growth(helpers[i], s);
	}
	printf("\n");
	fflush(stdout);
}

/* ---- comparing ---- */

/* Counts the appends in one root; those seen a second time. */
static unsigned int
read_appends(size_t root, unsigned char *seen, unsigned int n)
{
	char *path = xasprintf("%s/log", place.dirs[root]), line[64];
	unsigned int doubled = 0;
	unsigned long id;
	FILE *f;

	if ((f = fopen(path, "re")) == NULL)
		fatal("%s", path);
	while (fgets(line, sizeof(line), f) != NULL) {
		id = strtoul(line, NULL, 10);
		if (id > n || id % place.n != root)
			fatalx("%s has %s", path, line);
		if (seen[id]++ > 0)
			doubled++;
	}
	fclose(f);
	free(path);
	return doubled;
}

static void
compare_appends(unsigned int n)
{
	unsigned char *seen = xcalloc(n + 1, 1);
	unsigned int i, lost = 0, doubled = 0;
	size_t root;

	for (root = 0; root < place.n; root++)
		doubled += read_appends(root, seen, n);
	for (i = 1; i <= n; i++)
		if (calls[i].kind == APPEND && calls[i].status == 200 &&
		    seen[i] != 1)
			lost++;
	printf("appends: %u lost, %u doubled\n", lost, doubled);
	failures += lost > 0 || doubled > 0;
	free(seen);
}

static void
compare_files(unsigned int n)
{
	unsigned int i, lost = 0;
	struct stat st;
	char *path;

	for (i = 1; i <= n; i++) {
		if (calls[i].kind != CREATE || calls[i].status != 200)
			continue;
		path = xasprintf("%s/f%u", place.dirs[i % place.n], i);
		lost += stat(path, &st) == -1 || st.st_size != 1;
		free(path);
	}
	printf("files: %u lost\n", lost);
	failures += lost > 0;
}

static int
log_lines(void)
{
	char *log = world_log(&w), *p;
	int n = 0;

	for (p = log; *p != '\0'; p++)
		n += *p == '\n';
	free(log);
	return n;
}

/* What a dead worker leaves behind blocks the next for a while only. */
static void
begin(unsigned int slots)
{
	size_t i;

	place_make(&place, slots > 1 ? slots : 1, slots);
	for (i = 0; i < place.n; i++)
		place_put(&place, i, "probe");
	world_server(&w, "--slots", "8", "--record-grace", "1000",
	    "--queue-time", "10000", NULL);
	world_pair(&w);
	place_start(&place);
}

/* Clears one quarantined root the way that the manual tells. */
static int
clear_root(size_t root)
{
	char *marker = place_marker(&place, root);
	int r = 0;

	if (marker != NULL)
		r = world_command(&w, NULL, "clear-workspace-quarantine",
		    "--worker-dir", place.dirs[root], NULL);
	free(marker);
	if (r == 0 && place.slots > 1)
		r = place_reset(&place, root);
	return r;
}

/*
 * A server that restarts forgets the callers, and refuses the result of a
 * mutation whose caller is gone: a quarantine, as it has to be (protocol 9.4
 * row 3). It ends a serial worker; with slots the other roots go on, and the
 * worker is stopped here. Anything else is a failure.
 */
static void
revive(int ended)
{
	char *log = world_log(&w), *marker, *fence;
	size_t n = strlen(log), i;

	if (n > 400)
		memmove(log, log + n - 400, 401);
	if (ended &&
	    (place.slots > 1 || world_markers(&w) != 1 ||
		!WIFEXITED(w.status) ||
		strstr(log, "not settled: settle: HTTP 4") == NULL)) {
		printf("the worker ended: %s\n", log);
		ADD(failures);
	}
	free(log);
	control("faults", xstrdup("{\"rules\":[]}"));
	if (!ended)
		(void)place_stop(&place);
	for (i = 0; i < place.n; i++) {
		marker = place_marker(&place, i);
		fence = place.slots > 1 ? place_fence(&place, i) : NULL;
		free(marker);
		free(fence);
		if (marker == NULL && fence == NULL)
			continue;
		quarantines++;
		if (clear_root(i) != 0) {
			printf("root %zu is not cleared\n", i);
			ADD(failures);
		}
	}
	lines += log_lines();
	place_launch(&place);
	if (!world_wait(&w, "leasing", 60000)) {
		printf("it does not lease any more\n");
		ADD(failures);
	}
}

/* The fence of a root in the server's state, or NULL; to be freed. */
static char *
fence_in(const struct json *state, size_t root)
{
	const struct json *list = json_get_type(state, "workers", JSON_ARRAY);
	const char *value = NULL;
	char *name;

	if (list == NULL || list->n == 0)
		return NULL;
	name = xasprintf("native-workspace:%s", place.ids[root]);
	value = json_get_str(json_get(list->items[0], "fences"), name);
	free(name);
	return value == NULL ? NULL : xstrdup(value);
}

/*
 * With slots a quarantine is no end. The server also keeps the fence of a root
 * whose result no caller took (code-api-server 15.3). Each piece of work has
 * a fence for a moment; 1 if one root has had the same for too long.
 */
static int
in_quarantine(void)
{
	static char *fences[PLACE_ROOTS];
	static double since[PLACE_ROOTS];
	struct json *state;
	char *fence;
	size_t i;
	int stuck = 0;

	/* A server that drops its connections may drop this one, too. */
	if (place.slots < 2 || (state = world_state(&w)) == NULL)
		return 0;
	for (i = 0; i < place.n; i++) {
		fence = fence_in(state, i);
		if (fence == NULL || fences[i] == NULL ||
		    strcmp(fence, fences[i]) != 0)
			since[i] = world_now();
		free(fences[i]);
		fences[i] = fence;
		if (fence != NULL && world_now() - since[i] > FENCE_MS)
			stuck = 1;
	}
	json_free(state);
	return stuck;
}

int
main(int argc, char **argv)
{
	pthread_t threads[CALLERS];
	double start, end, next;
	unsigned int n;
	int i;

	log_init("soak", 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (sodium_init() == -1)
		fatalx("libsodium cannot be initialised");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	calls = xcalloc(CALLS_MAX + 1, sizeof(*calls));
	begin(argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 1);
	start = world_now();
	end = start + 60000 * (argc > 1 ? strtod(argv[1], NULL) : 20);
	for (i = 0; i < CALLERS; i++)
		if (pthread_create(&threads[i], NULL, caller, NULL) != 0)
			fatalx("no thread");
	for (next = start; world_now() < end;) {
		if (world_worker_end(&w, 0) != -1)
			revive(1);
		else if (in_quarantine())
			revive(0);
		if (world_now() >= next) {
			measure((world_now() - start) / 1000);
			next += SAMPLE_MS;
		}
		disturb();
	}
	control("faults", xstrdup("{\"rules\":[]}"));
	__atomic_store_n(&stopping, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < CALLERS; i++)
		(void)pthread_join(threads[i], NULL);
	n = ncalls < CALLS_MAX ? ncalls : CALLS_MAX - 1;
	if (!world_wait(&w, "leasing", 60000))
		fatalx("it does not lease any more");
	measure((world_now() - start) / 1000);
	world_signal(&w, SIGTERM);
	if (world_worker_end(&w, 35000) != 0) {
		printf("stop: status %#x\n", w.status);
		failures++;
	}
	printf("%.1f calls a second, %.1f done; %d log lines; "
	       "%d quarantines, %d markers left\n",
	    n * 1000.0 / (end - start), answered * 1000.0 / (end - start),
	    lines + log_lines(), quarantines, world_markers(&w));
	failures += world_markers(&w) != 0;
	tell_refusals();
	compare_appends(n);
	compare_files(n);
	place_free(&place);
	free(calls);
	printf("%s\n", failures == 0 ? "sound" : "NOT sound");
	return failures != 0;
}
