// Package webhook tells an org's own servers what became of its jobs, batches
// and responses: OpenAI's event objects, signed as Standard Webhooks says,
// delivered over asynq until a target has answered 2xx or three days have
// passed.
//
// It promises that an event that Send took is delivered at least once to every
// target that wants it, with the same webhook-id each time, or is kept as a
// dead letter; and that no connection is opened to an address that the operator
// did not allow. It does not promise order, nor that an event comes only once.
package webhook
