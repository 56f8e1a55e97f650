import OpenAI from 'openai';
import { openaiTests } from '../node/openai.mjs';

openaiTests(OpenAI);
