// Package webhook notifies an org's own servers about the results of its jobs, batches and
// responses. It sends OpenAI's event objects, signed according to Standard Webhooks, and
// delivers them over asynq until a target has answered 2xx or three days have passed.
//
// An event accepted by Send is delivered at least once to every target that wants it, with the
// same webhook-id each time, or is kept as a dead letter. No connection is opened to an address
// that the operator did not allow. Events may arrive out of order and more than once.
package webhook
