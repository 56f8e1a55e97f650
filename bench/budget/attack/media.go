package attack

// images makes more calls for images in parallel than the budget allows.
var images = Attack{
	Name: "images", Title: "20 parallel images, budget for 5",
	Setup: Setup{Budget: 5 * imageCall.Most()},
	Run: func(a *Arena) error {
		a.Burst(20, func(int) Call { return imageCall })
		return nil
	},
}

// audio does the same with recordings, which are priced by their length.
var audio = Attack{
	Name: "audio", Title: "20 parallel transcriptions, budget for 5",
	Setup: Setup{Budget: 5 * audioCall.Most()},
	Run: func(a *Arena) error {
		a.Burst(20, func(int) Call { return audioCall })
		return nil
	},
}

var (
	imageCall = Call{Endpoint: "images/generations", Model: "dall-e-3", Images: 1}
	audioCall = Call{Endpoint: "audio/transcriptions", Model: "whisper-1", Seconds: 20}
)
