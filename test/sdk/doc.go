// Package sdk compares what OpenAI's SDK can send with what this proxy knows, and reads the fake provider with
// Anthropic's SDK.
package sdk
