#ifndef EXECUTOR_FAULT_H
#define EXECUTOR_FAULT_H

/*
 * Named steps at which a test makes the file process fail, die or wait. They
 * exist only in a build configured with --enable-fault-injection; otherwise
 * the macros are constants and nothing of them is compiled.
 *
 * A test writes the file FAULT_CONTROL in the root: lines "POINT ACTION",
 * where ACTION is
 *	EIO, ENOSPC, ...	the step fails with this error
 *	kill			the process kills itself
 *	wait			it writes a byte to the FIFO FAULT_REACHED and
 *				goes on when it has read one from FAULT_GO
 * The file is consulted whenever a point is passed.
 */
#ifdef FAULT_INJECTION
#define FAULT_CONTROL ".fault-control"
#define FAULT_REACHED ".fault-reached"
#define FAULT_GO      ".fault-go"

/* The directory with the control file, opened with O_PATH. */
void fault_init(int root);

/* 0: go on; -1 with errno: behave as if the step had failed. */
int fault(const char *point);
#else
#define fault_init(root) ((void)0)
#define fault(point)     0
#endif

#endif
