#include "config.h"

#include <sys/types.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <netinet/in.h>

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "nameserver.h"

#define HEADER  12
#define TYPE_A  1
#define MESSAGE 512

static void
pause_ms(int ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000L };

	(void)nanosleep(&ts, NULL);
}

/* End of the question that begins at HEADER, or 0. */
static size_t
question_end(const uint8_t *q, size_t n)
{
	size_t at = HEADER;

	while (at < n && q[at] != 0)
		at += (size_t)q[at] + 1;
	return at + 5 <= n ? at + 5 : 0;
}

/* Makes the answer to q in out; its length. */
static size_t
answer(const struct ns_script *s, const uint8_t *q, size_t end, uint8_t *out)
{
	static const uint8_t record[] = { 0xc0, HEADER, 0, TYPE_A, 0, 1, 0, 0,
		0, 0, 0, 4 };
	int type = q[end - 4] << 8 | q[end - 3], i;
	size_t n = end;

	memcpy(out, q, end);
	out[2] = 0x84 | (q[2] & 1); /* an authoritative answer */
	out[3] = 0x80;
	memset(out + 6, 0, 6); /* counts; no additional records */
	if (s->mode == NS_NO_NAME)
		out[3] |= 3;
	else if (s->mode == NS_FAILURE)
		out[3] |= 2;
	else if (type == TYPE_A)
		for (i = 0; i < s->naddresses; i++) {
			memcpy(out + n, record, sizeof(record));
			memcpy(out + n + sizeof(record), &s->addresses[i], 4);
			n += sizeof(record) + 4;
			out[7]++;
		}
	return n;
}

static void
serve(struct ns_script *s, int fd)
{
	uint8_t q[MESSAGE], out[MESSAGE + 16 * NS_ADDRESSES];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	size_t end;
	ssize_t n;

	n = recvfrom(fd, q, sizeof(q), 0, (struct sockaddr *)&from, &len);
	if (n < HEADER || (end = question_end(q, (size_t)n)) == 0)
		return;
	s->queries++;
	if (s->mode == NS_SILENT)
		return;
	pause_ms(s->delay_ms);
	end = answer(s, q, end, out);
	(void)sendto(fd, out, end, 0, (struct sockaddr *)&from, len);
}

static void __attribute__((__noreturn__))
run(struct nameserver *ns, const int *fds, int n)
{
	struct pollfd p[NS_SERVERS];
	int i;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < n; i++) {
		p[i].fd = fds[i];
		p[i].events = POLLIN;
	}
	for (;;) {
		if (poll(p, (nfds_t)n, -1) == -1)
			_exit(1);
		for (i = 0; i < n; i++)
			if (p[i].revents != 0)
				serve(&ns->scripts[i], fds[i]);
	}
}

void
nameserver_start(struct nameserver *ns, const char *const *addresses, int n)
{
	struct sockaddr_in sin;
	int fds[NS_SERVERS], i;

	ns->scripts = mmap(NULL, NS_SERVERS * sizeof(*ns->scripts),
	    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ns->scripts == MAP_FAILED || n > NS_SERVERS)
		fatal("name server");
	for (i = 0; i < n; i++) {
		memset(&sin, 0, sizeof(sin));
		sin.sin_family = AF_INET;
		sin.sin_port = htons(53);
		fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (inet_pton(AF_INET, addresses[i], &sin.sin_addr) != 1 ||
		    fds[i] == -1 ||
		    bind(fds[i], (struct sockaddr *)&sin, sizeof(sin)) == -1)
			fatal("name server on %s", addresses[i]);
	}
	if ((ns->pid = fork()) == -1)
		fatal("fork");
	if (ns->pid == 0)
		run(ns, fds, n);
	for (i = 0; i < n; i++)
		close(fds[i]);
}

void
nameserver_stop(struct nameserver *ns)
{
	(void)kill(ns->pid, SIGKILL);
	(void)waitpid(ns->pid, NULL, 0);
	(void)munmap(ns->scripts, NS_SERVERS * sizeof(*ns->scripts));
	memset(ns, 0, sizeof(*ns));
}

void
nameserver_gives(struct ns_script *s, ...)
{
	const char *text;
	va_list ap;

	s->mode = NS_ANSWER;
	s->delay_ms = 0;
	s->naddresses = 0;
	va_start(ap, s);
	while ((text = va_arg(ap, const char *)) != NULL)
		if (s->naddresses == NS_ADDRESSES ||
		    inet_pton(AF_INET, text, &s->addresses[s->naddresses++]) !=
			1)
			fatalx("address %s", text);
	va_end(ap);
}
