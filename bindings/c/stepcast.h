/* The C interface of stepcast: commands called from any language, one shared library (libstepcast.so).
 *
 *   stepcast_engine *engine = stepcast_open(NULL, NULL);
 *   stepcast_call *call = stepcast_run(engine,
 *       "{\"command\": \"predict\", \"inputs\": [{\"workload\": \"llama3-8b\", \"system\": \"dgx-h100\"}],"
 *       " \"options\": {\"set\": {\"devices\": 8}}}", NULL, NULL);
 *   if (stepcast_status(call) == STEPCAST_DONE) puts(stepcast_answer(call));
 *   else fputs(stepcast_error(call), stderr);
 *   stepcast_free(call);
 *   stepcast_close(engine);
 *
 * Texts are UTF-8 and end with a zero byte. A text that a function returns lives as long as its call. Any thread may
 * call any function; one call belongs to one thread at a time, but for stepcast_cancel.
 * docs/reference/c-interface.md has the form of requests and the rules of versions.
 */
#ifndef STEPCAST_H
#define STEPCAST_H

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Version of this interface: functions and values may be added to one, none is changed or taken away. */
#define STEPCAST_API_VERSION 1

typedef struct stepcast_engine stepcast_engine;
typedef struct stepcast_call stepcast_call;

/* How a call ended: the exit codes of the executable. */
enum {
  STEPCAST_DONE = 0,
  STEPCAST_NO = 1,             /* a check said no; there is an answer */
  STEPCAST_WRONG_INPUT = 2,    /* the error names place, found, expected and fix */
  STEPCAST_LACK = 3,           /* the machine lacks something that was asked for */
  STEPCAST_FAILED = 4,         /* failed while running */
  STEPCAST_NO_VERDICT = 5,     /* the data allow no verdict; there is an answer */
  STEPCAST_DEFECT = 70,        /* a defect of stepcast */
  STEPCAST_CANCELLED = 130,
  STEPCAST_RUNNING = -1        /* has not ended */
};

/* STEPCAST_API_VERSION of the library that was loaded. */
int stepcast_api_version(void);
/* "stepcast 0.1.0 (1a2b3c4d)". */
const char *stepcast_version(void);

/* Opens the data files in a folder; NULL: those installed with the library. The engine keeps what it has read, so that
 * one serves all calls of a process. NULL if that fails, with the reason in *error (unless error is NULL), to be given
 * to free(). */
stepcast_engine *stepcast_open(const char *data, char **error);
/* Calls that run go on. */
void stepcast_close(stepcast_engine *engine);

/* Told at most twenty times a second, on the calling thread: the share done, from 0 to 1, and what is in hand. Other
 * than 0 cancels the call. */
typedef int (*stepcast_told)(void *user, double share, const char *note);

/* Runs a request to its end. told may be NULL. Free what it returns; NULL only without memory. */
stepcast_call *stepcast_run(stepcast_engine *engine, const char *request, stepcast_told told, void *user);

/* The same in steps, for programs that go on meanwhile: starts a request on a thread of its own ... */
stepcast_call *stepcast_start(stepcast_engine *engine, const char *request);
/* ... waits for its end at most so long; other than 0 once it has ended ... */
int stepcast_wait(stepcast_call *call, int milliseconds);
/* ... says how far it is: the share done, or below 0 where nothing was told since it was last asked ... */
double stepcast_progress(stepcast_call *call, const char **note);
/* ... and asks it to end at its next step. From any thread. */
void stepcast_cancel(stepcast_call *call);

int stepcast_status(stepcast_call *call);
/* What the command printed: JSON, unless the request asks for another form. Empty until the call has ended. */
const char *stepcast_answer(stepcast_call *call);
/* What the command prints for people, where the request asks for it ("screen": true) and the answer has another form. */
const char *stepcast_screen(stepcast_call *call);
/* What it said beside that: warnings, files written. */
const char *stepcast_notes(stepcast_call *call);
/* Why there is no answer; empty where there is one. */
const char *stepcast_error(stepcast_call *call);

/* The command line: arguments without the program's name; prints as the executable does. Returns the exit code. */
int stepcast_main(int count, const char *const *arguments);

/* A call that has not ended is cancelled; it is not waited for. */
void stepcast_free(stepcast_call *call);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
