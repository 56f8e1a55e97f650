import OpenAI from 'openai';
import { openaiTests } from './openai.mjs';

openaiTests(OpenAI);
