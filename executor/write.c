#include "config.h"

#include <sys/types.h>

#include <string.h>

#include "files.h"
#include "install.h"

int
tool_write_file(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct install in;

	if (tool_cancelled(t))
		return tool_aborted(f);
	if (q->content.len > FILE_MAX)
		return failure(f, EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "content exceeds write limit");
	memset(&in, 0, sizeof(in));
	in.path = &q->path;
	in.data = q->content.data;
	in.len = q->content.len;
	in.create_only = q->create_only;
	if (install(t, &in, f) == -1)
		return -1;
	res->created = (uint8_t)in.created;
	res->bytes_written = (int64_t)in.len;
	return 0;
}
