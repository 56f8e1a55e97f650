package wire

import "bytes"

// role is what a member of a choice, or of the text in it, is for.
type role uint8

const (
	noRole   role = iota
	endsIt        // of a choice, if it is a text
	failsIt       // of a choice
	countsIt      // usage
	textForm      // the text of a choice; some servers send it in two forms, and the last of these three counts
	messageForm
	deltaForm
	plainText   // generated text: a string, or parts with text
	thoughtText // the same; some servers repeat it under another name, so that only the first counts
	callParts   // of calls of tools, and of audio
	callContent // generated text that a tool is called with
)

// textShape is what a member is for, and the servers that send it.
type textShape struct {
	is      role
	servers string
}

// choiceShapes are all members of a choice that are read, in a whole answer and in a stream.
var choiceShapes = map[string]textShape{
	"finish_reason": {endsIt, "all; with the text error: OpenRouter"},
	"error":         {failsIt, "OpenRouter"},
	"usage":         {countsIt, "Moonshot"},
	"text":          {textForm, "OpenAI's completions; Together, next to the delta"},
	"message":       {messageForm, "all, whole; Perplexity, all of it so far next to the delta"},
	"delta":         {deltaForm, "all, in a stream"},
}

// messageShapes are all members of a message or delta with generated text.
var messageShapes = map[string]textShape{
	"content":           {plainText, "all; in parts: Mistral"},
	"refusal":           {plainText, "OpenAI"},
	"reasoning_content": {thoughtText, "DeepSeek, Qwen, xAI, vLLM, SGLang, llama.cpp"},
	"reasoning":         {thoughtText, "OpenRouter, Groq, Ollama, vLLM"},
	"tool_calls":        {callParts, "all"},
	"function_call":     {callParts, "OpenAI, older"},
	"audio":             {callParts, "OpenAI"},
}

// partShapes are all members of a part of content with generated text.
var partShapes = map[string]textShape{
	"text":     {plainText, "OpenAI, Mistral"},
	"thinking": {plainText, "Mistral"},
	"content":  {plainText, "gateways"},
	"refusal":  {plainText, "OpenAI"},
}

// callShapes are all members of calls of tools and of audio with generated text.
var callShapes = map[string]textShape{
	"arguments":  {callContent, "all"},
	"input":      {callContent, "OpenAI, of custom tools"},
	"name":       {plainText, "all"},
	"transcript": {plainText, "OpenAI, of audio"},
	"function":   {callParts, "all"},
	"custom":     {callParts, "OpenAI"},
}

// failureShapes are all members of an answer or event that may say that the call failed.
var failureShapes = map[string]struct {
	read    func(r *answerReader, name []byte) error
	servers string
}{
	"error":     {(*answerReader).mishap, "OpenAI and most others"},
	"errors":    {(*answerReader).mishap, "Cloudflare"},
	"object":    {(*answerReader).mishap, "vLLM, Mistral: the text error"},
	"type":      {(*answerReader).mishap, "Anthropic, OpenAI's responses: the text error"},
	"base_resp": {(*answerReader).baseResp, "MiniMax: a status_code that is not 0"},
	"message":   {(*answerReader).complaint, "vLLM, Mistral, AWS: in place of content"},
	"detail":    {(*answerReader).complaint, "FastAPI: in place of content"},
}

// EndMark is the data of the event after the last one of a stream, but for streams of responses and of media.
const EndMark = "[DONE]"

// end is how an event ends a stream.
type end struct{ done, failed bool }

// eventEnds are all types of events that end a stream of a response or complete a creation.
var eventEnds = map[string]end{
	"response.completed":         {done: true},
	"response.incomplete":        {done: true},
	"response.cancelled":         {done: true},
	"response.failed":            {done: true, failed: true},
	"image_generation.completed": {done: true},
	"image_edit.completed":       {done: true},
	"speech.audio.done":          {done: true},
	"transcript.text.done":       {done: true},
}

// EventJSON returns the document in the data of an event. Gemini's errors are lists.
func EventJSON(data []byte) []byte { return bytes.TrimPrefix(data, []byte("[")) }
